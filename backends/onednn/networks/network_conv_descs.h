// The library's primitives of a convolution's passes.
#pragma once

#include "backends/core/conv_problem.h"
#include "backends/core/lowering.h"
#include "oneapi/dnnl/dnnl.hpp"

namespace convgrad::onednn {

// How an ordinary convolution's tensors lie, or their gradients.
struct ConvDescs {
  dnnl::memory::desc data, weight, out;
  dnnl::memory::desc bias;  // of a forward; empty: none
};

// Returns the primitive of a pass, empty if the library has none. Throws
// dnnl::error. Requires: not transposed.
dnnl::primitive_desc_base MakePassDesc(Pass pass, const ConvProblem& problem,
                                       const ConvDescs& descs);

// A transposed convolution is its mirror, an ordinary convolution whose data
// side is the step's result: its forward is the mirror's backward-data, and so
// on. Returns it, without a bias.
ConvProblem MirrorOf(ConvProblem problem);

}  // namespace convgrad::onednn
