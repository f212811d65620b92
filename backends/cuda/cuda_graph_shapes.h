// The shapes of an ordinary convolution as cuDNN wants them.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "backends/core/convolution/lowering.h"

namespace convgrad::cuda {

// Dense orders that cuDNN is asked to work in; weights likewise.
enum class Format { kNXC, kNCX };

// Returns "nxc" or "ncx".
absl::string_view NameOf(Format format);

// Returns a tensor's dims, as many axes as the problem has.
Dims DimsFor(const ConvProblem& problem, Role role);

// Returns (1, O, 1...), the dims of a bias that is fused.
Dims PerChannelDims(const ConvProblem& problem);

// At least two spatial axes: cuDNN has no convolution with one, which runs as
// the second of two.
struct GraphTensor {
  std::vector<int64_t> dims;
  std::vector<int64_t> strides;
};

GraphTensor GraphTensorOf(const Dims& dims, Format format);

// Returns a field of each axis, of two axes at least.
std::vector<int64_t> AxisValues(const ConvProblem& problem,
                                int64_t SpatialAxis::*field);

}  // namespace convgrad::cuda
