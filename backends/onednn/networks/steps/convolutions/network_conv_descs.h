// `MakePassDesc` makes the library's primitives for the convolutions of
// networks.
#pragma once

#include <optional>
#include <string>

#include "backends/core/convolution/conv_problem.h"
#include "backends/onednn/execution/onednn_library_step.h"
#include "backends/onednn/library/onednn_pass_desc.h"
#include "backends/onednn/networks/schedule/network_builder.h"

namespace convgrad::onednn {

// Returns the primitive for a pass; empty if the library has no correct one.
// Only a forward has a bias. Throws dnnl::error. Requires: not transposed.
dnnl::primitive_desc_base MakePassDesc(Pass pass, const ConvProblem& problem,
                                       const ConvDescs& descs);

// Returns the descriptor of a pass's weight in the library's layout: its
// gradient is always f32.
dnnl::memory::desc ConvWeightDesc(Pass pass, const ConvProblem& problem,
                                  DataType dtype);

// Returns the primitive for a pass without a bias on tensors that lie so, in
// the dtype of `out`; empty if the library has only plain loops. Throws
// dnnl::error.
dnnl::primitive_desc_base FindFastPass(Pass pass, const ConvProblem& problem,
                                       const dnnl::memory::desc& data,
                                       const dnnl::memory::desc& out);

// Returns the desc of a tensor whose layout the library chooses.
dnnl::memory::desc WithAnyLayout(const dnnl::memory::desc& desc);

// Returns the tensor as the library sees it.
LibraryTensor TensorOf(const NetworkTensor& tensor);

// Returns the desc of a weight of the caller: f32, row-major.
dnnl::memory::desc PlainWeightDesc(const ConvProblem& problem);

// Returns the caller's tensor of the input `name`; nullopt if it isn't an input
// of `dtype`, or has enough channels for blocks.
std::optional<LibraryTensor> CallersInput(const std::string& name,
                                          DataType dtype,
                                          NetworkBuilder* builder);

// Returns whether each channel is a group of its own.
bool IsDepthwise(const ConvProblem& problem);

// Returns the mirror of a transposed convolution, without a bias: an ordinary
// convolution whose data is the step's result. The transposed forward is the
// mirror's backward-data, and so on.
ConvProblem MirrorOf(ConvProblem problem);

}  // namespace convgrad::onednn
