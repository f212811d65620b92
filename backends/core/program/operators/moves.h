// Computes which element of the operand each element of a pad or an
// index_select is.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/core/program/operators/step_dims.h"

namespace convgrad {

// One axis of a pad: the extents, and the elements in front of the operand's.
struct PadAxis {
  int64_t in, out, before;
  bool is_padded() const { return in != out; }
};
// Returns the axes of a pad. Requires: shapes of its program.
std::vector<PadAxis> PadAxesOf(const ProgramStep& step,
                               const ProgramShapes& shapes);
// Returns by index of the result the index of the operand, -1 for the step's
// `value`.
std::vector<int64_t> PadSources(const ProgramStep& step, const PadAxis& axis);

// Returns kInvalidArgument unless 0 <= index < extent. `position` is the
// index's own in the operand `index` of an index_select.
absl::Status CheckIndex(const ProgramStep& step, int64_t position,
                        int64_t index, int64_t extent);

}  // namespace convgrad
