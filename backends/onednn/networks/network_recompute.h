// `RepeatSegments` makes a backward compute values of the forward again instead
// of keeping them.
#pragma once

#include <cstddef>
#include <vector>

#include "backends/onednn/execution/onednn_schedule.h"

namespace convgrad::onednn {

// The parts of a schedule of a forward and its backward.
struct ForwardAndBackward {
  // The steps [0, forward_end) compute the forward's values. Steps that return
  // them follow, then the backward.
  size_t forward_end = 0;
  size_t backward_begin = 0;
  // For each buffer, whether it is a result of the run, of any kind.
  std::vector<bool> is_result;
  // For each buffer, whether it is an operand that the backward finds
  // unchanged.
  std::vector<bool> is_lasting;
};

// The recomputed steps of one segment of the forward.
struct RepeatedSegment {
  // Indices of forward steps, in their order.
  std::vector<size_t> steps;
  std::vector<BufferId> writes;
};

// Splits the forward into segments. For each segment except the last, finds the
// buffers that needn't be kept for the backward: large buffers that no other
// segment uses, and that the segment's steps can write again from kept buffers.
// Chooses the number of segments that needs the least memory. The result is the
// same for all schedules with equal forwards whose backwards read the same
// buffers.
std::vector<RepeatedSegment> FindRepeatedSegments(
    const Schedule& schedule, const ForwardAndBackward& parts);

// Inserts copies of each segment's steps, with Step::is_again set, directly
// before the first backward step that reads their results.
void RepeatSegments(const std::vector<RepeatedSegment>& segments,
                    size_t backward_begin, Schedule* schedule);

}  // namespace convgrad::onednn
