// What an upsample reads.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/core/program/operators/step_dims.h"

namespace convgrad {

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
