#include "backends/cuda/cuda_candidates.h"

#include <array>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"

namespace convgrad::cuda {
namespace {

bool HasPads(const ConvProblem& problem) {
  return absl::c_any_of(problem.axes, [](const SpatialAxis& axis) {
    return axis.pad_begin != 0 || axis.pad_end != 0;
  });
}

bool HasUnequalPads(const ConvProblem& problem) {
  return absl::c_any_of(problem.axes, [](const SpatialAxis& axis) {
    return axis.pad_begin != axis.pad_end;
  });
}

// Returns the problem on data that already contains its padding.
ConvProblem PadBeforehand(ConvProblem problem) {
  for (SpatialAxis& axis : problem.axes) {
    axis.in += axis.pad_begin + axis.pad_end;
    axis.pad_begin = axis.pad_end = 0;
  }
  return problem;
}

std::vector<GraphSpec> SpecsFor(const PassSpec& pass) {
  std::vector<ConvProblem> problems;
  // Six of cuDNN 9.19's engines take unequal pads and return wrong sums.
  if (!HasUnequalPads(pass.problem)) problems.push_back(pass.problem);
  if (HasPads(pass.problem)) problems.push_back(PadBeforehand(pass.problem));
  // Tensor cores drop bits of their sums, which an f32 result would show
  // (measured: a relative error of 1.4e-5 after 13,000 products).
  std::vector<std::pair<DataType, DataType>> dtypes;
  if (pass.operands != DataType::kF32 && pass.result != DataType::kF32) {
    dtypes.emplace_back(pass.operands, pass.result);
  }
  dtypes.emplace_back(DataType::kF32, DataType::kF32);
  std::vector<GraphSpec> specs;
  for (const ConvProblem& problem : problems) {
    for (const auto& [operands, result] : dtypes) {
      // Tensor cores compute in channels-last layout. Without them, cuDNN 9.19
      // first copies such tensors to its workspace (the workspace has both
      // their sizes).
      std::array formats = {Format::kNXC, Format::kNCX};
      if (operands == DataType::kF32) std::swap(formats[0], formats[1]);
      for (Format format : formats) {
        specs.push_back(
            {pass.pass, problem, operands, result, format, pass.bias});
      }
    }
  }
  return specs;
}

}  // namespace

absl::StatusOr<Candidate> ChooseCandidate(const PassSpec& spec,
                                          const GraphTarget& target) {
  absl::Status refusal;
  for (GraphSpec& graph : SpecsFor(spec)) {
    absl::StatusOr<std::unique_ptr<ConvGraph>> made =
        ConvGraph::Make(graph, target);
    if (made.ok()) {
      Candidate candidate{std::move(graph), *std::move(made), {}};
      for (size_t i = 0; i < spec.problem.axes.size(); ++i) {
        candidate.data_begin.push_back(
            spec.problem.axes[i].pad_begin -
            candidate.spec.problem.axes[i].pad_begin);
      }
      return candidate;
    }
    if (!absl::IsUnimplemented(made.status())) return made.status();
    if (refusal.ok()) refusal = made.status();
  }
  return refusal;
}

MappedTensor DenseMap(const Candidate& candidate, Role role,
                      const MappedTensor& view) {
  const GraphSpec& spec = candidate.spec;
  const bool is_weight = role == Role::kWeight;
  const bool last = spec.format == Format::kNXC;
  const DataType dtype =
      role == ResultOf(spec.pass) ? spec.result : spec.operands;
  const Layout channels_last = is_weight ? Layout::kOXI : Layout::kNXC;
  const Layout channels_first = is_weight ? Layout::kOIX : Layout::kNCX;
  const TensorDescriptor dense{dtype, last ? channels_last : channels_first,
                               DimsFor(spec.problem, role)};
  MappedTensor mapped = MapOf(dense, spec.problem.groups);
  if (role == Role::kData) {
    const size_t rank = candidate.data_begin.size();
    for (size_t i = 0; i < rank; ++i) {
      mapped.map.offset +=
          candidate.data_begin[i] * mapped.map.stride[kMapAxes - rank + i];
    }
  }
  mapped.has_gaps = mapped.extents != view.extents;
  mapped.extents = view.extents;
  return mapped;
}

}  // namespace convgrad::cuda
