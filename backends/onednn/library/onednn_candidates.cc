#include "backends/onednn/library/onednn_candidates.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "backends/onednn/library/onednn_cost_model.h"
#include "backends/onednn/library/onednn_pass_desc.h"

namespace convgrad::onednn {
namespace {

using dnnl::memory;

ConvDescs DescsFor(const PassSpec& spec, Format format) {
  ConvDescs descs;
  descs.data = FormatDesc(ActivationDims(spec.data), spec.data.dtype, format);
  descs.out = FormatDesc(ActivationDims(spec.out), spec.out.dtype, format);
  descs.weight =
      memory::desc(WeightDimsOf(spec.problem), TypeOf(spec.weight.dtype),
                   memory::format_tag::any);
  if (spec.has_bias) descs.bias = BiasDesc(spec.problem);
  return descs;
}

// Returns the forward pass that a backward pass must name: the same shapes, in
// the operands' dtype.
ConvDescs ForwardDescsFor(const PassSpec& spec, Format format) {
  PassSpec forward = spec;
  forward.data.dtype = forward.weight.dtype = forward.out.dtype =
      spec.operand_dtype;
  forward.has_bias = false;
  return DescsFor(forward, format);
}

memory::desc ArgumentDesc(const dnnl::primitive_desc_base& primitive_desc,
                          int arg) {
  return primitive_desc.query_md(dnnl::query::exec_arg_md, arg);
}

// The functions below find implementations that are wrong for a class of
// problems (see backends/gotchas.md).

// oneDNN 3.2.0's bf16 backward-weight in channels-last layout reads out of
// bounds and returns wrong values if it is dilated and the channels per group
// don't fill its vectors.
bool ReadsOutOfBounds(const PassSpec& spec, Format format,
                      absl::string_view implementation) {
  if (spec.pass != Pass::kBackwardWeight || format != Format::kNXC ||
      spec.operand_dtype != DataType::kBF16 ||
      !absl::StrContains(implementation, "jit_bf16")) {
    return false;
  }
  const ConvProblem& problem = spec.problem;
  const bool dilated =
      std::any_of(problem.axes.begin(), problem.axes.end(),
                  [](const SpatialAxis& axis) { return axis.dilation > 1; });
  return dilated && (LaneShare(problem.in_channels / problem.groups) < 1 ||
                     LaneShare(problem.out_channels / problem.groups) < 1);
}

Candidate DescribeCandidate(const PassSpec& spec, Format format,
                            dnnl::primitive_desc_base primitive_desc) {
  const PassArguments args = ArgumentsOf(spec.pass);
  Candidate candidate;
  candidate.format = format;
  candidate.data = ArgumentDesc(primitive_desc, args.data);
  candidate.weight = ArgumentDesc(primitive_desc, args.weight);
  candidate.out = ArgumentDesc(primitive_desc, args.out);
  candidate.implementation = primitive_desc.impl_info_str();
  candidate.primitive_desc = std::move(primitive_desc);
  candidate.predicted_seconds = PredictSeconds(spec, candidate);
  return candidate;
}

// Returns whether Inf or NaN in one operand affects sums that don't contain it.
// The library's bf16 instructions take channels in pairs. If a group has an odd
// number of channels, its last one is paired with its neighbour in memory,
// times 0. This neighbour is another group's channel or another position's,
// unless channels are padded with zeros. Depthwise kernels don't use pairs.
bool MixesNeighbours(const PassSpec& spec, const Candidate& candidate) {
  if (spec.operand_dtype != DataType::kBF16 ||
      spec.pass == Pass::kBackwardWeight ||
      absl::StrContains(candidate.implementation, "dw")) {
    return false;
  }
  const bool is_forward = spec.pass == Pass::kForward;
  const int64_t groups = spec.problem.groups;
  const int64_t channels =
      is_forward ? spec.problem.in_channels : spec.problem.out_channels;
  const memory::desc& summed = is_forward ? candidate.data : candidate.out;
  const bool is_padded = groups == 1 && summed.get_padded_dims()[1] % 2 == 0;
  if (FillsTilesWithNeighbours(spec.pass, spec.problem,
                               candidate.implementation)) {
    return true;
  }
  return channels / groups % 2 == 1 && !is_padded;
}

// Returns the implementation in `format` if the library has a correct one.
absl::StatusOr<std::optional<Candidate>> MakeCandidate(const PassSpec& spec,
                                                       Format format) {
  return Guard("planning", [&]() -> absl::StatusOr<std::optional<Candidate>> {
    // Otherwise takes the library's first choice or none, because the formats
    // offer enough alternatives.
    dnnl::primitive_desc_base primitive_desc = MakePassDesc(
        spec.pass, spec.problem, DescsFor(spec, format),
        ForwardDescsFor(spec, format), [&](absl::string_view implementation) {
          return MissesRows(spec.pass, spec.problem, implementation) ||
                 MisplacesPlanes(spec.pass, spec.problem, implementation) ||
                 CrashesWithoutTaps(spec.pass, spec.problem, implementation);
        });
    if (!primitive_desc) return std::nullopt;
    const char* const implementation = primitive_desc.impl_info_str();
    if (ReadsOutOfBounds(spec, format, implementation) ||
        (format == Format::kNXC &&
         WritesBeyondScratch(spec.problem, implementation))) {
      return std::nullopt;
    }
    Candidate candidate =
        DescribeCandidate(spec, format, std::move(primitive_desc));
    if (MixesNeighbours(spec, candidate)) return std::nullopt;
    return candidate;
  });
}

}  // namespace

bool WritesBeyondScratch(const ConvProblem& problem,
                         absl::string_view implementation) {
  constexpr int64_t kLanes = 8;
  const bool strided =
      std::any_of(problem.axes.begin(), problem.axes.end(),
                  [](const SpatialAxis& axis) { return axis.stride > 1; });
  return strided && problem.in_channels / problem.groups % kLanes != 0 &&
         absl::StrContains(implementation, "jit_1x1") &&
         !absl::StrContains(implementation, "avx512");
}

bool MissesRows(Pass pass, const ConvProblem& problem,
                absl::string_view implementation) {
  constexpr int64_t kRightUpTo = 7;
  return pass == Pass::kBackwardWeight && problem.axes.size() == 2 &&
         problem.axes[0].kernel > kRightUpTo && problem.axes[0].stride > 1 &&
         absl::StrContains(implementation, "jit_dw");
}

bool MisplacesPlanes(Pass pass, const ConvProblem& problem,
                     absl::string_view implementation) {
  if (pass != Pass::kBackwardWeight || problem.axes.size() != 3 ||
      (!absl::StartsWith(implementation, "jit") &&
       !absl::StartsWith(implementation, "brg"))) {
    return false;
  }
  const SpatialAxis& z = problem.axes[0];
  const bool is_f32 = !absl::StrContains(implementation, "bf16") &&
                      !absl::StrContains(implementation, "amx");
  if (is_f32 && (z.stride == 1 || z.pad_begin <= z.stride)) {
    return false;
  }
  const int64_t unpadded =
      (std::max<int64_t>(z.pad_begin, 0) + z.stride - 1) / z.stride;
  const int64_t output = std::min(z.out - 1, unpadded);
  return output * z.stride - z.pad_begin + (z.kernel - 1) * z.dilation >= z.in;
}

bool FillsTilesWithNeighbours(Pass pass, const ConvProblem& problem,
                              absl::string_view implementation) {
  constexpr int64_t kFewChannels = 4;
  return pass == Pass::kForward && problem.groups == 1 &&
         problem.in_channels <= kFewChannels &&
         implementation == "jit:avx512_core_amx";
}

bool CrashesWithoutTaps(Pass pass, const ConvProblem& problem,
                        absl::string_view implementation) {
  if (pass != Pass::kBackwardData || !absl::StartsWith(implementation, "brg")) {
    return false;
  }
  const Lowering lowering(problem);
  for (size_t i = 0; i < problem.axes.size(); ++i) {
    int64_t tap = 0;
    while (tap < problem.axes[i].kernel && lowering.IsDead(i, tap)) ++tap;
    if (tap == problem.axes[i].kernel) return true;
  }
  return false;
}

PassArguments ArgumentsOf(Pass pass) {
  switch (pass) {
    case Pass::kForward:
      return {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
    case Pass::kBackwardData:
      return {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST};
    case Pass::kBackwardWeight:
      break;
  }
  return {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST};
}

PassSpec InF32(PassSpec spec) {
  const auto convert = [](StridedView* view, bool* is_copied) {
    *is_copied |= view->dtype != DataType::kF32;
    view->dtype = DataType::kF32;
  };
  convert(&spec.data, &spec.copies_data);
  convert(&spec.out, &spec.copies_out);
  spec.weight.dtype = spec.operand_dtype = DataType::kF32;
  return spec;
}

absl::StatusOr<std::vector<Candidate>> ListCandidates(const PassSpec& spec) {
  std::vector<Candidate> candidates;
  for (Format format : {Format::kAny, Format::kNXC, Format::kNCX}) {
    ASSIGN_OR_RETURN(std::optional<Candidate> candidate,
                     MakeCandidate(spec, format));
    if (candidate) candidates.push_back(*std::move(candidate));
  }
  const auto is_plain_loop = [](const Candidate& candidate) {
    return IsPlainLoop(candidate.implementation);
  };
  if (spec.operand_dtype != DataType::kF32 ||
      !std::all_of(candidates.begin(), candidates.end(), is_plain_loop)) {
    candidates.erase(
        std::remove_if(candidates.begin(), candidates.end(), is_plain_loop),
        candidates.end());
  }
  return candidates;
}

}  // namespace convgrad::onednn
