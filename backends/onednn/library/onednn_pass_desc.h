// `MakePassDesc` makes the library's primitive for a pass of an ordinary
// convolution.
#pragma once

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "backends/core/convolution/conv_problem.h"
#include "backends/core/convolution/lowering.h"
#include "oneapi/dnnl/dnnl.hpp"

namespace convgrad::onednn {

// Layouts of a convolution's tensors or of their gradients.
struct ConvDescs {
  dnnl::memory::desc data, weight, out;
  dnnl::memory::desc bias;  // of a forward pass; empty: none
  // Operations on the result of a forward pass before it is written.
  dnnl::post_ops post_ops = {};
};

// Returns the library's first primitive for a pass whose implementation
// `is_wrong` doesn't reject; empty if there is none. `forward` describes the
// forward pass to which a backward pass belongs. Throws dnnl::error. Requires:
// not transposed.
dnnl::primitive_desc_base MakePassDesc(
    Pass pass, const ConvProblem& problem, const ConvDescs& descs,
    const ConvDescs& forward,
    absl::FunctionRef<bool(absl::string_view implementation)> is_wrong);

}  // namespace convgrad::onednn
