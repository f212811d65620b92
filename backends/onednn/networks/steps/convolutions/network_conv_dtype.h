// `ConvolutionDtype` chooses the dtype in which a network's convolution is
// computed.
#pragma once

#include <string>

#include "absl/types/span.h"
#include "backends/core/convolution/conv_problem.h"
#include "backends/core/convolution/lowering.h"
#include "backends/core/tensor_descriptor.h"
#include "backends/onednn/execution/onednn_library_step.h"
#include "backends/onednn/networks/schedule/network_builder.h"

namespace convgrad::onednn {

// Returns whether none of the library's faults in bf16 depends on the problem's
// shape. How its tensors lie matters as well.
bool IsRightInBf16(const ConvProblem& problem);

// Returns bf16 if it is requested and the library is known to compute all of
// `passes` correctly in it (backends/gotchas.md lists exceptions); otherwise
// f32. `problem` is the step's, or its mirror, on activations with the layouts
// of `x` and `y`. Throws dnnl::error.
DataType ConvolutionDtype(const ConvProblem& problem, bool is_mirrored,
                          absl::Span<const Pass> passes, const NetworkTensor& x,
                          const NetworkTensor& y,
                          const NetworkBuilder& builder);

// Returns a weight for passes that compute in `dtype`: f32, row-major, and
// rounded to the activations' dtype, unless the library rounds it while it
// converts it to its own layout.
LibraryTensor ConvolutionWeight(const std::string& name,
                                const ConvProblem& problem, DataType dtype,
                                NetworkBuilder* builder);

}  // namespace convgrad::onednn
