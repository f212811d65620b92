// A backward that computes values of the forward again instead of keeping them.
#pragma once

#include <cstddef>
#include <vector>

#include "backends/onednn/execution/onednn_schedule.h"

namespace convgrad::onednn {

// What a schedule of a forward and its backward consists of.
struct ForwardAndBackward {
  // The steps [0, forward_end) compute the forward's values; after those that
  // return them the backward begins.
  size_t forward_end = 0;
  size_t backward_begin = 0;
  // By buffer: whether it is a result of the run, of any kind.
  std::vector<bool> is_result;
  // By buffer: whether it is an operand that the backward finds unchanged.
  std::vector<bool> is_lasting;
};

// What is computed again of one part of the forward.
struct RepeatedSegment {
  // Indices of forward steps, in their order.
  std::vector<size_t> steps;
  std::vector<BufferId> writes;
};

// Splits the forward into segments, and finds what of each but the last one
// needn't be kept for the backward: large buffers that no other segment uses,
// and that its steps can write again from what is kept. There are as many
// segments as need the least memory. Equal for all schedules of equal forwards
// whose backwards read the same of it.
std::vector<RepeatedSegment> FindRepeatedSegments(
    const Schedule& schedule, const ForwardAndBackward& parts);

// Inserts copies of each segment's steps, with Step::is_again, right
// before the first step of the backward that reads what they write.
void RepeatSegments(const std::vector<RepeatedSegment>& segments,
                    size_t backward_begin, Schedule* schedule);

}  // namespace convgrad::onednn
