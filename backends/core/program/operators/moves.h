// Computes the element of the operand that each result element of a pad or an
// index_select copies.
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
// Writes for each index of the result the index of the operand, or -1 for the
// step's `value`. Requires: room for axis.out numbers.
void ListPadSources(const ProgramStep& step, const PadAxis& axis,
                    int64_t* sources);

// Returns kInvalidArgument unless 0 <= index < extent. `position` is the place
// of the number in the operand `index` of an index_select.
absl::Status CheckIndex(const ProgramStep& step, int64_t position,
                        int64_t index, int64_t extent);

}  // namespace convgrad
