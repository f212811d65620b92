#include "backends/onednn/networks/steps/products/network_conv_epilogue.h"

namespace convgrad::onednn {

using dnnl::memory;

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
  if (parts.relu6) {
    post_ops.append_eltwise(dnnl::algorithm::eltwise_clip, 0, 6);
  } else if (parts.relu) {
    // Replaces a ReLU, which would hide NaN. The + 0 turns -0 into 0.
    epilogue.slope = post_ops.len();
    post_ops.append_prelu(0);
    post_ops.append_eltwise(dnnl::algorithm::eltwise_linear, 1, 0);
  }
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
