#include "backends/onednn/library/onednn_cost_model.h"

#include <algorithm>

#include "absl/strings/match.h"

namespace convgrad::onednn {
namespace {

// Unless a comment says otherwise, all numbers are fitted to 6110 timings. Only
// their ratios matter. They are from the layers of ResNet-50 and MobileNet v1
// to v3 at batch 1 and 16, oneDNN 3.2.0, two cores of an EPYC 9004.

// Peak of one core in f32; 16 bits have twice as much.
constexpr double kPeakFlops = 120e9;

// The rate of AMX's tiles, divided by that of f32. An Intel Xeon of the Emerald
// Rapids family computes the gradients of ResNet-50's first layer in bf16 in a
// third to two thirds of the time that gemm takes.
constexpr double kTilesRate = 6;

// Families of implementations with similar performance.
enum class Family { kJit, kBrgemm, kBrgemmStrided, kDepthwise, kGemm, kPlain };

Family FamilyOf(absl::string_view implementation) {
  const auto has = [&](absl::string_view part) {
    return absl::StrContains(implementation, part);
  };
  if (has("ref")) return Family::kPlain;
  if (has("gemm:") || has("gemm_")) return Family::kGemm;
  if (has("dw")) return Family::kDepthwise;
  if (has("strided")) return Family::kBrgemmStrided;
  return has("brg") ? Family::kBrgemm : Family::kJit;
}

// Classes of problems for which implementations differ in speed.
enum class Kind { kDepthwise, kFirstLayer, kPointwise, kWindow };

Kind KindOf(const ConvProblem& problem) {
  const int64_t in = problem.in_channels / problem.groups;
  if (problem.groups > 1 && in == 1) return Kind::kDepthwise;
  if (in <= 4) return Kind::kFirstLayer;
  const bool pointwise =
      std::all_of(problem.axes.begin(), problem.axes.end(),
                  [](const SpatialAxis& axis) { return axis.kernel == 1; });
  return pointwise ? Kind::kPointwise : Kind::kWindow;
}

// Share of the peak in f32 and in 16 bits.
struct Share {
  double wide, narrow;
};

Share ShareOfGemm(Pass pass, Kind kind) {
  const bool weight = pass == Pass::kBackwardWeight;
  switch (kind) {
    case Kind::kDepthwise:
      return {0.015, 0.0075};
    case Kind::kFirstLayer:
      return weight ? Share{0.31, 0.22} : Share{0.45, 0.35};
    case Kind::kPointwise:
      return weight ? Share{0.72, 0.76} : Share{0.83, 0.72};
    case Kind::kWindow:
      break;
  }
  return weight ? Share{0.75, 0.75}
                : Share{pass == Pass::kForward ? 0.7 : 0.6, 0.5};
}

// Returns the time in which gemm writes the data's windows to a matrix, or adds
// them up again.
double UnfoldSeconds(const PassSpec& spec) {
  const ConvProblem& problem = spec.problem;
  if (KindOf(problem) != Kind::kWindow) return 0;
  const bool wide = ByteSizeOf(spec.operand_dtype) == 4;
  // By pass: forward, backward-data, backward-weight.
  constexpr double kValuesPerSecond[] = {1.7e9, 10e9, 0.9e9};
  // In 16 bits, the share of the peak includes it for the other two passes.
  if (!wide && spec.pass != Pass::kBackwardWeight) return 0;
  const int64_t values =
      MultiplyAdds(problem) * problem.groups / problem.out_channels;
  return static_cast<double>(values) /
         kValuesPerSecond[static_cast<size_t>(spec.pass)];
}

Share ShareOfJit(Pass pass, Kind kind) {
  const bool weight = pass == Pass::kBackwardWeight;
  switch (kind) {
    case Kind::kFirstLayer:
      return weight ? Share{0.68, 0.51} : Share{0.85, 0.68};
    case Kind::kPointwise:
      return weight ? Share{0.77, 0.67} : Share{0.89, 0.89};
    default:
      return weight ? Share{0.79, 0.73} : Share{0.93, 0.95};
  }
}

Share ShareOf(const PassSpec& spec, const Candidate& candidate, Kind kind) {
  const bool pointwise = kind == Kind::kPointwise;
  switch (FamilyOf(candidate.implementation)) {
    case Family::kPlain:
      return {0.002, 0.001};
    case Family::kGemm:
      return ShareOfGemm(spec.pass, kind);
    case Family::kDepthwise:
      return candidate.format == Format::kAny ? Share{0.8, 0.4}
                                              : Share{0.45, 0.28};
    case Family::kBrgemmStrided:
      if (kind == Kind::kDepthwise) return {0.004, 0.002};
      return pointwise ? Share{0.8, 0.57} : Share{0.8, 0.83};
    case Family::kBrgemm:
      return pointwise ? Share{0.82, 0.87} : Share{0.93, 0.88};
    case Family::kJit:
      break;
  }
  return ShareOfJit(spec.pass, kind);
}

// Returns the output positions of one image, which are the columns of gemm's
// matrices.
int64_t PositionsOf(const ConvProblem& problem) {
  int64_t positions = 1;
  for (const SpatialAxis& axis : problem.axes) positions *= axis.out;
  return positions;
}

// Returns the share of the arithmetic that isn't spent on empty lanes.
double UsedLanes(const PassSpec& spec, Family family, Kind kind) {
  const ConvProblem& problem = spec.problem;
  if (kind == Kind::kDepthwise) return 1;
  if (family == Family::kGemm && problem.groups == 1) {
    return LaneShare(PositionsOf(problem));
  }
  const double out = LaneShare(problem.out_channels / problem.groups);
  // jit has special kernels for the few channels of a first layer.
  if (kind == Kind::kFirstLayer && family == Family::kJit &&
      spec.pass != Pass::kBackwardData) {
    return out;
  }
  return out * LaneShare(problem.in_channels / problem.groups);
}

double ComputeSeconds(const PassSpec& spec, const Candidate& candidate) {
  const bool narrow = ByteSizeOf(spec.operand_dtype) == 2;
  const Kind kind = KindOf(spec.problem);
  const Family family = FamilyOf(candidate.implementation);
  const Share share = ShareOf(spec, candidate, kind);
  const bool tiles = absl::StrContains(candidate.implementation, "amx");
  const double rate =
      kPeakFlops *
      (narrow ? (tiles ? kTilesRate : 2) * share.narrow : share.wide);
  double seconds = 2.0 * static_cast<double>(MultiplyAdds(spec.problem)) /
                   (rate * UsedLanes(spec, family, kind));
  if (family == Family::kGemm) seconds += UnfoldSeconds(spec);
  if (family == Family::kGemm && narrow) {
    // gemm writes its sums to f32 matrices and rounds them in a second pass
    // over memory.
    if (spec.pass == Pass::kForward) {
      seconds += 2.0 * static_cast<double>(candidate.out.get_size()) / 7e9;
    } else if (spec.pass == Pass::kBackwardData) {
      seconds += 2.0 * static_cast<double>(candidate.data.get_size()) / 18e9;
    }
  }
  return seconds;
}

// Returns the time to reorder an activation to `wanted`; 0 if it needs no copy.
// `is_copied` says that its dtype requires a copy in any case; the rate of such
// a copy also depends on the layout.
double ReorderSeconds(const StridedView& view, bool is_copied,
                      const dnnl::memory::desc& wanted) {
  const dnnl::memory::desc user = ActivationDesc(view);
  const bool stays = wanted == user;
  if (stays && !is_copied) return 0;
  const bool narrow = ByteSizeOf(view.dtype) == 2;
  const bool to_blocks = wanted.get_inner_nblks() > 0;
  const double bytes_per_second = stays ? 24e9
                                  : to_blocks
                                      ? (narrow || is_copied ? 14e9 : 18e9)
                                      : (narrow || is_copied ? 9e9 : 10.5e9);
  return static_cast<double>(wanted.get_size() + user.get_size()) /
         bytes_per_second;
}

double WeightReorderSeconds(const PassSpec& spec,
                            const dnnl::memory::desc& wanted) {
  const dnnl::memory::desc user = WeightDesc(spec.weight, spec.problem.groups);
  if (wanted == user) return 0;
  // Larger weights are slower: an Intel Xeon of the Sapphire Rapids family
  // reordered them at 3e9 bytes/s, because their rows are a power of two apart
  // and map to few cache sets.
  constexpr size_t kLargeWeight = size_t{512} << 10;
  const bool narrow = ByteSizeOf(spec.operand_dtype) == 2;
  const double bytes_per_second = narrow                             ? 9e9
                                  : wanted.get_size() > kLargeWeight ? 5e9
                                                                     : 11.5e9;
  return static_cast<double>(wanted.get_size() + user.get_size()) /
         bytes_per_second;
}

}  // namespace

double LaneShare(int64_t channels) {
  constexpr int64_t kLanes = 16;
  const int64_t padded = (channels + kLanes - 1) / kLanes * kLanes;
  return static_cast<double>(channels) / static_cast<double>(padded);
}

double PredictSeconds(const PassSpec& spec, const Candidate& candidate) {
  return (ComputeSeconds(spec, candidate) +
          ReorderSeconds(spec.data, spec.copies_data, candidate.data) +
          ReorderSeconds(spec.out, spec.copies_out, candidate.out) +
          WeightReorderSeconds(spec, candidate.weight)) /
         spec.threads;
}

double PredictSharedSeconds(const PassSpec& spec, const Candidate& candidate) {
  return (spec.shared == Shared::kData
              ? ReorderSeconds(spec.data, spec.copies_data, candidate.data)
              : ReorderSeconds(spec.out, spec.copies_out, candidate.out)) /
         spec.threads;
}

}  // namespace convgrad::onednn
