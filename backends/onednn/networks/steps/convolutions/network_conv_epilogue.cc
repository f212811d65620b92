#include "backends/onednn/networks/steps/convolutions/network_conv_epilogue.h"

namespace convgrad::onednn {
namespace {

using dnnl::memory;

// Appends an activation. NaN stays NaN, except in a relu6 (network_guard.h).
void AppendActivation(Activation activation, ConvEpilogue* epilogue) {
  using dnnl::algorithm;
  dnnl::post_ops& post_ops = epilogue->post_ops;
  switch (activation) {
    case Activation::kRelu6:
      return post_ops.append_eltwise(algorithm::eltwise_clip, 0, 6);
    case Activation::kSilu:
      return post_ops.append_eltwise(algorithm::eltwise_swish, 1, 0);
    case Activation::kHardswish:
      return post_ops.append_eltwise(algorithm::eltwise_hardswish, 1 / 6.0F,
                                     1 / 2.0F);
    case Activation::kRelu:
    case Activation::kLeakyRelu:
      // Replaces the library's ReLU, which would hide NaN if the slope is 0.
      // The + 0 turns -0 into 0.
      epilogue->slope = post_ops.len();
      post_ops.append_prelu(0);
      return post_ops.append_eltwise(algorithm::eltwise_linear, 1, 0);
    default:
      return;
  }
}

}  // namespace

Pointwise ActivationOf(const ProgramStep& step) {
  switch (step.op) {
    case Operator::kRelu6:
      return {Activation::kRelu6};
    case Operator::kLeakyRelu:
      return {Activation::kLeakyRelu,
              static_cast<float>(NumbersOf(step).first)};
    case Operator::kSilu:
      return {Activation::kSilu};
    case Operator::kHardswish:
      return {Activation::kHardswish};
    default:
      return {Activation::kRelu};
  }
}

ConvEpilogue MakeConvEpilogue(const ConvProblem& problem,
                              const memory::desc& result,
                              const ConvEpilogueParts& parts) {
  ConvEpilogue epilogue;
  dnnl::post_ops& post_ops = epilogue.post_ops;
  if (parts.scale_and_shift) {
    epilogue.scale = post_ops.len();
    post_ops.append_binary(dnnl::algorithm::binary_mul,
                           PerChannelDesc(problem));
    epilogue.shift = post_ops.len();
    post_ops.append_binary(dnnl::algorithm::binary_add,
                           PerChannelDesc(problem));
  }
  if (parts.addend) {
    epilogue.addend = post_ops.len();
    post_ops.append_binary(dnnl::algorithm::binary_add, result);
  }
  AppendActivation(parts.activation, &epilogue);
  return epilogue;
}

memory::desc PerChannelDesc(const ConvProblem& problem) {
  memory::dims dims(problem.axes.size() + 2, 1);
  dims[1] = problem.out_channels;
  memory::dims strides(dims.size(), 1);
  strides[0] = problem.out_channels;
  return {dims, memory::data_type::f32, strides};
}

}  // namespace convgrad::onednn
