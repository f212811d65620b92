// The library's primitives of an ordinary convolution's passes.
#pragma once

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "backends/core/convolution/conv_problem.h"
#include "backends/core/convolution/lowering.h"
#include "oneapi/dnnl/dnnl.hpp"

namespace convgrad::onednn {

// How a convolution's tensors lie, or their gradients.
struct ConvDescs {
  dnnl::memory::desc data, weight, out;
  // Of a forward, or a gradient that comes with the weight's; empty: none.
  dnnl::memory::desc bias;
  // What a forward does to its result before it writes it.
  dnnl::post_ops post_ops = {};
};

// Returns the library's first primitive of a pass whose implementation
// `is_wrong` doesn't name, empty if there is none. A backward names the forward
// that it belongs to, which `forward` describes. Throws dnnl::error. Requires:
// not transposed.
dnnl::primitive_desc_base MakePassDesc(
    Pass pass, const ConvProblem& problem, const ConvDescs& descs,
    const ConvDescs& forward,
    absl::FunctionRef<bool(absl::string_view implementation)> is_wrong);

}  // namespace convgrad::onednn
