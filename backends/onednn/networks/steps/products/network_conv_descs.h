// The library's primitives of the convolutions of networks.
#pragma once

#include <optional>
#include <string>

#include "backends/core/convolution/conv_problem.h"
#include "backends/onednn/execution/onednn_library_step.h"
#include "backends/onednn/library/onednn_pass_desc.h"
#include "backends/onednn/networks/schedule/network_builder.h"

namespace convgrad::onednn {

// Returns the primitive of a pass, empty if the library has none that is right.
// Only a forward has a bias. Throws dnnl::error. Requires: not transposed.
dnnl::primitive_desc_base MakePassDesc(Pass pass, const ConvProblem& problem,
                                       const ConvDescs& descs);

// Whether it is the library's plain loops, which are never fast.
bool IsPlainLoop(const dnnl::primitive_desc_base& pass);

// Returns the desc of a tensor that may lie as the library likes best.
dnnl::memory::desc WithAnyLayout(const dnnl::memory::desc& desc);

// Returns how the caller has a weight: f32, row-major.
dnnl::memory::desc PlainWeightDesc(const ConvProblem& problem);

// Returns the input `name` as the caller has it, nullopt if it is none, or not
// in `dtype`, or has channels enough for blocks.
std::optional<LibraryTensor> CallersInput(const std::string& name,
                                          DataType dtype,
                                          NetworkBuilder* builder);

// A transposed convolution is its mirror, an ordinary convolution whose data
// side is the step's result: its forward is the mirror's backward-data, and so
// on. Returns it, without a bias.
ConvProblem MirrorOf(ConvProblem problem);

}  // namespace convgrad::onednn
