#include "backends/onednn/library/onednn_pass_desc.h"

#include "backends/onednn/library/onednn_types.h"

namespace convgrad::onednn {
namespace {

using dnnl::memory;
using Forward = dnnl::convolution_forward::primitive_desc;
using BackwardData = dnnl::convolution_backward_data::primitive_desc;
using BackwardWeight = dnnl::convolution_backward_weights::primitive_desc;

constexpr auto kAlgorithm = dnnl::algorithm::convolution_direct;

struct Window {
  memory::dims strides, dilates, pad_begin, pad_end;
};

Window WindowOf(const ConvProblem& problem) {
  Window window;
  for (const SpatialAxis& axis : problem.axes) {
    window.strides.push_back(MeaningfulStride(axis));
    window.dilates.push_back(axis.dilation - 1);  // 0 means dense in oneDNN
    window.pad_begin.push_back(axis.pad_begin);
    window.pad_end.push_back(axis.pad_end);
  }
  return window;
}

Forward MakeForward(const ConvDescs& descs, const Window& w) {
  const auto kind = dnnl::prop_kind::forward_training;
  auto attributes = StrictAttributes();
  if (descs.post_ops.len() > 0) attributes.set_post_ops(descs.post_ops);
  return {CpuEngine(), kind,       kAlgorithm, descs.data, descs.weight,
          descs.bias,  descs.out,  w.strides,  w.dilates,  w.pad_begin,
          w.pad_end,   attributes, true};
}

dnnl::primitive_desc MakeBackward(Pass pass, const ConvDescs& descs,
                                  const Window& w, const Forward& forward) {
  const auto attributes = StrictAttributes();
  if (pass == Pass::kBackwardData) {
    return BackwardData(CpuEngine(), kAlgorithm, descs.data, descs.weight,
                        descs.out, w.strides, w.dilates, w.pad_begin, w.pad_end,
                        forward, attributes, true);
  }
  return BackwardWeight(CpuEngine(), kAlgorithm, descs.data, descs.weight,
                        descs.out, w.strides, w.dilates, w.pad_begin, w.pad_end,
                        forward, attributes, true);
}

}  // namespace

dnnl::primitive_desc_base MakePassDesc(
    Pass pass, const ConvProblem& problem, const ConvDescs& descs,
    const ConvDescs& forward,
    absl::FunctionRef<bool(absl::string_view implementation)> is_wrong) {
  const Window window = WindowOf(problem);
  // Must outlive the choice, because the library's iterator refers to it.
  Forward hint;
  dnnl::primitive_desc chosen;
  if (pass == Pass::kForward) {
    chosen = MakeForward(descs, window);
  } else {
    hint = MakeForward(forward, window);
    if (!hint) return {};
    chosen = MakeBackward(pass, descs, window, hint);
  }
  while (chosen && is_wrong(chosen.impl_info_str())) {
    if (!chosen.next_impl()) return {};
  }
  return chosen;
}

}  // namespace convgrad::onednn
