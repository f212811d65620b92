#include "backends/onednn/networks/schedule/network_gradient_sums.h"

#include <iterator>
#include <map>
#include <utility>

#include "backends/core/data_type.h"
#include "backends/kernels/operators/combine.h"
#include "backends/kernels/tokens/axis_reduction.h"
#include "backends/onednn/execution/onednn_library_step.h"

namespace convgrad::onednn {
namespace {

constexpr absl::string_view kKind = "gradient sum";

// Disjoint parts of one axis with one step.
class DisjointParts {
 public:
  explicit DisjointParts(const AxisPart& first) : like_(first) {}

  // Adds a part unless it overlaps with one that is there. Returns whether it
  // did.
  bool Add(const AxisPart& part) {
    if (part.axis != like_.axis || part.step != like_.step) return false;
    const int64_t residue = part.first % part.step;
    const int64_t last = part.first + (part.count - 1) * part.step;
    const auto next = lasts_.lower_bound({residue, part.first});
    if (next != lasts_.end() && next->first.first == residue &&
        next->first.second <= last) {
      return false;
    }
    if (next != lasts_.begin()) {
      const auto& [before, its_last] = *std::prev(next);
      if (before.first == residue && its_last >= part.first) return false;
    }
    lasts_.emplace_hint(next, std::pair(residue, part.first), last);
    return true;
  }

 private:
  const AxisPart like_;
  // The last index by the residue and the first index.
  std::map<std::pair<int64_t, int64_t>, int64_t> lasts_;
};

void AddPart(const PartGradient& part, const NetworkTensor& to,
             Schedule* schedule) {
  const DataType dtype = to.blocks.dtype;
  PhysicalLayout layout;
  for (size_t i = 0; i < part.strides.size(); ++i) {
    layout.axes.push_back({.extent = part.dy.dims[i],
                           .stride = part.strides[i],
                           .padded = part.dy.dims[i]});
  }
  AddReorder(ElementsOf(part.dy),
             {layout, dtype, {to.buffer, part.offset * ByteSizeOf(dtype)}},
             schedule);
}

}  // namespace

std::vector<std::vector<size_t>> DisjointGroups(
    absl::Span<const AxisPart> parts) {
  std::vector<DisjointParts> groups;
  std::vector<std::vector<size_t>> indices;
  for (size_t i = 0; i < parts.size(); ++i) {
    size_t group = 0;
    while (group < groups.size() && !groups[group].Add(parts[i])) ++group;
    if (group == groups.size()) {
      groups.emplace_back(parts[i]).Add(parts[i]);
      indices.emplace_back();
    }
    indices[group].push_back(i);
  }
  return indices;
}

std::vector<NetworkTensor> AddParts(absl::Span<const PartGradient> parts,
                                    const NetworkTensor& whole,
                                    Schedule* schedule) {
  std::vector<AxisPart> places;
  for (const PartGradient& part : parts) places.push_back(part.part);
  std::vector<NetworkTensor> gradients;
  for (const std::vector<size_t>& group : DisjointGroups(places)) {
    NetworkTensor gradient = whole;
    gradient.buffer = schedule->AddBuffer(whole.blocks.bytes());
    int64_t written = 0;
    for (const size_t i : group) written += parts[i].dy.blocks.size();
    if (written != whole.blocks.size()) {
      AddZeros(kKind, gradient.buffer, schedule);
    }
    for (const size_t i : group) AddPart(parts[i], gradient, schedule);
    gradients.push_back(gradient);
  }
  return gradients;
}

void AddSumsOfRepeats(absl::string_view kind, BufferId from, const Dims& dims,
                      const NetworkTensor& to, Schedule* schedule) {
  schedule->Add(kind, {from}, {to.buffer}, [=](const RunContext& context) {
    ReduceAxes({Reduction::kSum, dims, to.dims, to.blocks.dtype},
               context.At(from), context.At(to.buffer), context.parts());
  });
}

void AddSums(BufferId sum, absl::Span<const BufferId> addends,
             const ChannelBlocks& blocks, Schedule* schedule) {
  if (addends.size() == 1) {
    return AddCopy(addends[0], sum, blocks.bytes(), schedule);
  }
  for (size_t i = 1; i < addends.size(); ++i) {
    const BufferId a = i == 1 ? addends[0] : sum, b = addends[i];
    schedule->Add(kKind, {a, b}, {sum}, [=](const RunContext& context) {
      Combine(blocks, Combination::kAdd,
              {.a = context.At(a), .b = context.At(b), .y = context.At(sum)},
              context.parts());
    });
  }
}

}  // namespace convgrad::onednn
