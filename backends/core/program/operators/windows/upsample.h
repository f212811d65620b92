// Computes which input elements each output of an upsample step reads.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/core/program/operators/step_dims.h"

namespace convgrad {

// One spatial axis of an upsample step.
struct UpsampleAxis {
  // Extents of the input and of the output.
  int64_t in, out;
  // Input elements between the sources of two neighbouring outputs.
  double step;
  bool align_corners;
};
// Returns the spatial axes of an upsample step. Requires: `shapes` are those of
// the step's program.
std::vector<UpsampleAxis> UpsampleAxesOf(const ProgramStep& step,
                                         const ProgramShapes& shapes);
// Returns the index of the input that output `index` copies. Computes it in
// f32, because PyTorch does so.
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
