// Computes the shapes of an ordinary convolution for cuDNN.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "backends/core/convolution/lowering.h"

namespace convgrad::cuda {

// Dense memory orders of activations and weights in cuDNN graphs.
enum class Format { kNXC, kNCX };

// Returns "nxc" or "ncx".
absl::string_view NameOf(Format format);

// Returns a tensor's dims. Requires: an ordinary problem.
Dims DimsFor(const ConvProblem& problem, Role role);

// Dims and strides with at least two spatial axes. A single axis becomes the
// second of two, because cuDNN has no convolution with one.
struct GraphTensor {
  std::vector<int64_t> dims;
  std::vector<int64_t> strides;
};

GraphTensor GraphTensorOf(const Dims& dims, Format format);

// Returns a field of each axis, for at least two axes.
std::vector<int64_t> AxisValues(const ConvProblem& problem,
                                int64_t SpatialAxis::*field);

}  // namespace convgrad::cuda
