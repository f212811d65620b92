// Computes which input elements each output of an upsample step reads.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/core/program/operators/step_dims.h"

namespace convgrad {

// One spatial axis of an upsample step.
struct UpsampleAxis {
  int64_t in, out;
  // The distance in the input of two neighbours in the output, in elements.
  double step;
  bool align_corners;
};
// Returns the axes of an upsample step. Requires: shapes of its program.
std::vector<UpsampleAxis> UpsampleAxesOf(const ProgramStep& step,
                                         const ProgramShapes& shapes);
// Returns the input that output `index` copies, rounded in f32 as PyTorch does.
int64_t NearestSource(const UpsampleAxis& axis, int64_t index);
// The two inputs of a linear output, which is
// (1 - weight) * input[low] + weight * input[high].
struct LinearSource {
  int64_t low, high;
  double weight;
};
// Returns the inputs of output `index`.
LinearSource LinearSourceOf(const UpsampleAxis& axis, int64_t index);

// The four inputs of a cubic output. Some of them may be equal.
struct CubicSource {
  struct Tap {
    int64_t index;
    double weight;
  };
  Tap taps[4];
};
CubicSource CubicSourceOf(const UpsampleAxis& axis, int64_t index);

}  // namespace convgrad
