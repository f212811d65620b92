// What follows from a program once the shapes of its inputs are known.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "backends/core/convolution/conv_problem.h"
#include "backends/core/program/program.h"

namespace convgrad {

// Thread-compatible value.
struct ProgramShapes {
  // Logical dims of every value: inputs, parameters and results of steps.
  absl::flat_hash_map<std::string, Dims> dims;
  // By step: twice the multiply-adds of the forward, padded windows counted; an
  // operator on elements counts as one for each. 0: nothing is computed.
  std::vector<int64_t> flops;
};

// Infers the dims of every value by PyTorch's formulas. `inputs` has one entry
// for each of the program's inputs: activations of rank 2 to 5, class indices
// of rank 1 to 4, every extent at least 1. Requires: Validate(program).ok().
// Errors: kInvalidArgument naming step, operand, found and expected; kOverflow
// where all values in double don't fit in 63 bits of bytes.
absl::StatusOr<ProgramShapes> InferShapes(const Program& program,
                                          const std::vector<Dims>& inputs);

// Returns the convolution that a conv, conv_transpose or linear step is. The
// bias is part of it where the step has one. Requires: shapes of this program.
ConvProblem ProblemOf(const ProgramStep& step, const ProgramShapes& shapes);

// One spatial axis of a pooling step: window, stride and pads, `out` windows,
// of which each has an element of the input.
struct PoolAxis {
  int64_t in, kernel, stride, dilation, pad_begin, pad_end, out;
};
// Returns the axes of a max_pool or avg_pool step; pad_end is large enough for
// the last window (ceil_mode), and may be larger than `padding`, which an
// average counts no more than (count_include_pad): see AveragedElements.
std::vector<PoolAxis> PoolAxesOf(const ProgramStep& step,
                                 const ProgramShapes& shapes);

// Returns whether the operator makes each result of a window of its operand:
// poolings, and upsample.
bool IsPooling(Operator op);
// Returns at least the pairs of an output and an input in its window along the
// spatial axis `axis`, of a step that IsPooling.
int64_t MostTaps(const ProgramStep& step, const ProgramShapes& shapes,
                 size_t axis);

// Elements from `begin` up to `end` along one axis.
struct AxisWindow {
  int64_t begin, end;
};
// Returns the window of output `index`, which may reach into the pads.
// Requires: axis.dilation == 1.
AxisWindow PaddedWindow(const PoolAxis& axis, int64_t index);
// Returns how many elements along `axis` the window counts when pads are
// counted: as far as the input and the padding (pad_begin on both sides) go.
int64_t AveragedElements(const PoolAxis& axis, int64_t index);
// Returns the window of output `index` of an adaptive pooling.
AxisWindow AdaptiveWindow(int64_t in, int64_t out, int64_t index);

// One spatial axis of an upsample step.
struct UpsampleAxis {
  int64_t in, out;
  // Distance in the input of neighbours in the output.
  double step;
  bool align_corners;
};
std::vector<UpsampleAxis> UpsampleAxesOf(const ProgramStep& step,
                                         const ProgramShapes& shapes);
// Returns the input that output `index` copies, rounded in f32 as PyTorch does.
int64_t NearestSource(const UpsampleAxis& axis, int64_t index);
// Output `index` is (1 - weight) * input[low] + weight * input[high].
struct LinearSource {
  int64_t low, high;
  double weight;
};
LinearSource LinearSourceOf(const UpsampleAxis& axis, int64_t index);

}  // namespace convgrad
