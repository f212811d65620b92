// The library's primitives of the convolutions of networks.
#pragma once

#include "backends/core/conv_problem.h"
#include "backends/onednn/onednn_pass_desc.h"

namespace convgrad::onednn {

// Returns the primitive of a pass, empty if the library has none that is right.
// Only a forward has a bias. Throws dnnl::error. Requires: not transposed.
dnnl::primitive_desc_base MakePassDesc(Pass pass, const ConvProblem& problem,
                                       const ConvDescs& descs);

// A transposed convolution is its mirror, an ordinary convolution whose data
// side is the step's result: its forward is the mirror's backward-data, and so
// on. Returns it, without a bias.
ConvProblem MirrorOf(ConvProblem problem);

}  // namespace convgrad::onednn
