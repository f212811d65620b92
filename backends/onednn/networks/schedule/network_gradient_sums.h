// Adds up the gradients of a value: those of steps that use all of it, and
// those of slices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "backends/kernels/copies/reorder.h"
#include "backends/onednn/execution/onednn_schedule.h"
#include "backends/onednn/networks/schedule/network_layouts.h"

namespace convgrad::onednn {

// The `count` indices first, first + step, ... of an axis. Requires: at least
// one; step at least 1.
struct AxisPart {
  size_t axis = 0;
  int64_t first = 0;
  int64_t count = 1;
  int64_t step = 1;
};

// The gradient `dy` of a part of a value in rows. Element i of dy belongs to
// element offset + sum of i[axis] * strides[axis] of the value.
struct PartGradient {
  AxisPart part;
  int64_t offset = 0;
  Dims strides;
  NetworkTensor dy;
};

// Groups parts of one tensor, in their order, so that no element is in two
// parts of a group. Returns the indices of each group's parts.
std::vector<std::vector<size_t>> DisjointGroups(
    absl::Span<const AxisPart> parts);

// Appends steps that copy the gradients of parts into gradients of a value like
// `whole`: disjoint parts into the same one, which is 0 where there is no part.
// Returns these gradients.
std::vector<NetworkTensor> AddParts(absl::Span<const PartGradient> parts,
                                    const NetworkTensor& whole,
                                    Schedule* schedule);

// Appends a step that sums `from`, row-major of these dims, over the axes along
// which the rows `to` have extent 1. Both have the dtype of `to`. Sums are in
// f64. Requires: equal ranks of at least 1.
void AddSumsOfRepeats(absl::string_view kind, BufferId from, const Dims& dims,
                      const NetworkTensor& to, Schedule* schedule);

// Appends steps that write the sum of tensors of this shape to `sum`. Requires:
// at least one.
void AddSums(BufferId sum, absl::Span<const BufferId> addends,
             const ChannelBlocks& blocks, Schedule* schedule);

}  // namespace convgrad::onednn
