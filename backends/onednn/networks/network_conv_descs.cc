#include "backends/onednn/networks/network_conv_descs.h"

#include <utility>

#include "backends/onednn/onednn_candidates.h"
#include "backends/onednn/onednn_types.h"

namespace convgrad::onednn {
namespace {

using dnnl::memory;

struct ConvWindow {
  memory::dims strides, dilates, pad_begin, pad_end;
};

ConvWindow WindowOf(const ConvProblem& problem) {
  ConvWindow window;
  for (const SpatialAxis& axis : problem.axes) {
    window.strides.push_back(axis.stride);
    window.dilates.push_back(axis.dilation - 1);  // 0 is dense there
    window.pad_begin.push_back(axis.pad_begin);
    window.pad_end.push_back(axis.pad_end);
  }
  return window;
}

using ForwardDesc = dnnl::convolution_forward::primitive_desc;

ForwardDesc MakeForwardDesc(const ConvWindow& w, const ConvDescs& descs,
                            dnnl::prop_kind kind) {
  const auto algorithm = dnnl::algorithm::convolution_direct;
  const auto attributes = StrictAttributes();
  if (descs.bias) {
    return {CpuEngine(), kind,       algorithm, descs.data, descs.weight,
            descs.bias,  descs.out,  w.strides, w.dilates,  w.pad_begin,
            w.pad_end,   attributes, true};
  }
  return {CpuEngine(),  kind,      algorithm,  descs.data,
          descs.weight, descs.out, w.strides,  w.dilates,
          w.pad_begin,  w.pad_end, attributes, true};
}

// Returns the first implementation from `chosen` on that isn't known to be
// wrong, empty if there is none. What `chosen` was made with must still be
// there: the library's iterator refers to the hint.
dnnl::primitive_desc WithoutWrong(const ConvProblem& problem,
                                  dnnl::primitive_desc chosen) {
  while (chosen && WritesBeyondScratch(problem, chosen.impl_info_str())) {
    if (!chosen.next_impl()) return {};
  }
  return chosen;
}

}  // namespace

dnnl::primitive_desc_base MakePassDesc(Pass pass, const ConvProblem& problem,
                                       const ConvDescs& descs) {
  const ConvWindow w = WindowOf(problem);
  const auto algorithm = dnnl::algorithm::convolution_direct;
  const auto attributes = StrictAttributes();
  if (pass == Pass::kForward) {
    return WithoutWrong(
        problem, MakeForwardDesc(w, descs, dnnl::prop_kind::forward_training));
  }
  ConvDescs without_bias = descs;
  without_bias.bias = {};
  without_bias.weight = {descs.weight.get_dims(), descs.out.get_data_type(),
                         memory::format_tag::any};
  const ForwardDesc hint =
      MakeForwardDesc(w, without_bias, dnnl::prop_kind::forward_training);
  if (!hint) return {};
  if (pass == Pass::kBackwardData) {
    return WithoutWrong(
        problem, dnnl::convolution_backward_data::primitive_desc(
                     CpuEngine(), algorithm, descs.data, descs.weight,
                     descs.out, w.strides, w.dilates, w.pad_begin, w.pad_end,
                     hint, attributes, true));
  }
  return WithoutWrong(
      problem, dnnl::convolution_backward_weights::primitive_desc(
                   CpuEngine(), algorithm, descs.data, descs.weight, descs.out,
                   w.strides, w.dilates, w.pad_begin, w.pad_end, hint,
                   attributes, true));
}

ConvProblem MirrorOf(ConvProblem problem) {
  problem.transposed = false;
  std::swap(problem.in_channels, problem.out_channels);
  for (SpatialAxis& axis : problem.axes) {
    std::swap(axis.in, axis.out);
    axis.output_padding = 0;
  }
  problem.bias.reset();
  return problem;
}

}  // namespace convgrad::onednn
