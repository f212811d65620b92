// `ConvEpilogue` is what the library does with a convolution's result before it
// writes it (post-ops).
#pragma once

#include "backends/core/convolution/conv_problem.h"
#include "backends/core/program/operators/program_step.h"
#include "backends/kernels/operators/pointwise.h"
#include "oneapi/dnnl/dnnl.hpp"

namespace convgrad::onednn {

// The post-ops, and the positions of those that have operands; -1: none.
struct ConvEpilogue {
  dnnl::post_ops post_ops;
  int scale = -1, shift = -1;  // with operands of PerChannelDesc
  int addend = -1;             // with an operand like the result
  int slope = -1;              // with one number, the slope below 0
};

// The post-ops of a convolution, in this order.
struct ConvEpilogueParts {
  bool scale_and_shift = false;
  bool addend = false;
  // One of kNone, kRelu, kRelu6, kLeakyRelu, kSilu and kHardswish.
  Activation activation = Activation::kNone;
};

// Returns the activation of a step that ends a convolution (EndsConvolution).
Pointwise ActivationOf(const ProgramStep& step);

// Returns the epilogue of a result with this desc.
ConvEpilogue MakeConvEpilogue(const ConvProblem& problem,
                              const dnnl::memory::desc& result,
                              const ConvEpilogueParts& parts);

// Returns the desc of a tensor with one f32 number per channel of the result.
dnnl::memory::desc PerChannelDesc(const ConvProblem& problem);

}  // namespace convgrad::onednn
