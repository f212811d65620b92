// In which dtype a network's convolutions are computed.
#pragma once

#include <string>

#include "absl/types/span.h"
#include "backends/core/convolution/conv_problem.h"
#include "backends/core/convolution/lowering.h"
#include "backends/core/tensor_descriptor.h"
#include "backends/onednn/execution/onednn_library_step.h"
#include "backends/onednn/networks/schedule/network_builder.h"

namespace convgrad::onednn {

// Returns bf16 where that is wanted and all of `passes` are of a kind that the
// library is known to be right in (see backends/gotchas.md for those where it
// isn't), else f32. `problem` is that of the step, or its mirror, on
// activations that lie like `x` and `y`. Throws dnnl::error.
DataType ConvolutionDtype(const ConvProblem& problem, bool is_mirrored,
                          absl::Span<const Pass> passes, const NetworkTensor& x,
                          const NetworkTensor& y,
                          const NetworkBuilder& builder);

// Returns a weight for passes that compute in `dtype`: f32, row-major, rounded
// to the activations' dtype, unless the library does that while it brings it to
// its own layout.
LibraryTensor ConvolutionWeight(const std::string& name,
                                const ConvProblem& problem, DataType dtype,
                                NetworkBuilder* builder);

}  // namespace convgrad::onednn
