// What follows from a program once the shapes of its inputs are known.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "backends/core/conv_problem.h"
#include "backends/core/program.h"

namespace convgrad {

// Thread-compatible value.
struct ProgramShapes {
  // Logical dims of every value: inputs, parameters and results of steps.
  absl::flat_hash_map<std::string, Dims> dims;
  // By step: twice the multiply-adds of the forward; 0 where that is nothing
  // worth counting.
  std::vector<int64_t> flops;
};

// Infers the dims of every value. `inputs` has one entry for each of the
// program's inputs. Requires: Validate(program).ok().
// Errors: kInvalidArgument naming step, operand, found and expected; sizes
// that overflow 63 bits.
absl::StatusOr<ProgramShapes> InferShapes(const Program& program,
                                          const std::vector<Dims>& inputs);

// Returns the convolution that a conv, conv_transpose or linear step is. The
// bias is part of it where the step has one. Requires: shapes of this program.
ConvProblem ProblemOf(const ProgramStep& step, const ProgramShapes& shapes);

// One spatial axis of a pooling step: window, stride and pads, `out` windows.
struct PoolAxis {
  int64_t in, kernel, stride, dilation, pad_begin, pad_end, out;
};
// Returns the axes of a max_pool or avg_pool step; pad_end is large enough for
// the last window (ceil_mode).
std::vector<PoolAxis> PoolAxesOf(const ProgramStep& step,
                                 const ProgramShapes& shapes);

}  // namespace convgrad
