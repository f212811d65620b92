// A linear layer by the library's inner product, on weights as the caller has
// them: bringing them to blocks would take longer than the product does.
#include <string>
#include <utility>

#include "backends/onednn/networks/network_groups.h"
#include "backends/onednn/onednn_types.h"

namespace convgrad::onednn {
namespace {

using dnnl::memory;

class Linear final : public NetworkGroup {
 public:
  explicit Linear(const ProgramStep& step)
      : step_(step), x_(step.operands[0]), weight_(step.operands[1]) {
    if (step.operands.size() > 2) bias_ = step.operands[2];
  }

  absl::Status Forward(NetworkBuilder* builder) override {
    const NetworkTensor x = builder->Value(x_);
    const NetworkTensor y = builder->AddValue(step_.result);
    x_buffer_ = x.buffer;
    x_desc_ = DescOf(x);
    y_desc_ = DescOf(y);
    const memory::dims dims = {y.blocks.channels, x.blocks.channels};
    weight_desc_ = {dims, x_desc_.get_data_type(), memory::format_tag::ab};
    bias_desc_ = {{dims[0]}, memory::data_type::f32, memory::format_tag::a};
    macs_ = static_cast<double>(x.blocks.batch) * dims[0] * dims[1];
    Add({.kind = "linear forward",
         .reads = {x.buffer, builder->Parameter(weight_)},
         .writes = {y.buffer},
         .primitive_desc = ForwardDesc(!bias_.empty()),
         .arguments = {{DNNL_ARG_SRC, x_desc_, x.buffer},
                       {DNNL_ARG_WEIGHTS, weight_desc_,
                        builder->Parameter(weight_)},
                       {DNNL_ARG_DST, y_desc_, y.buffer}}},
        {DNNL_ARG_BIAS, builder->Parameter(bias_)}, builder);
    return absl::OkStatus();
  }

  absl::Status Backward(NetworkBuilder* builder) override {
    const BufferId dy = builder->GradientOf(step_.result);
    if (dy == kNoBuffer) return absl::OkStatus();
    AddWeightGradient(dy, builder);
    AddInputGradient(dy, builder);
    return absl::OkStatus();
  }

 private:
  struct Bias {
    int arg;
    BufferId buffer;  // kNoBuffer: none
  };

  dnnl::inner_product_forward::primitive_desc ForwardDesc(bool bias) const {
    const auto kind = dnnl::prop_kind::forward_training;
    return bias ? dnnl::inner_product_forward::primitive_desc(
                      CpuEngine(), kind, x_desc_, weight_desc_, bias_desc_,
                      y_desc_, StrictAttributes())
                : dnnl::inner_product_forward::primitive_desc(
                      CpuEngine(), kind, x_desc_, weight_desc_, y_desc_,
                      StrictAttributes());
  }

  void AddWeightGradient(BufferId dy, NetworkBuilder* builder) const {
    const bool has_bias = !bias_.empty();
    const auto hint = ForwardDesc(false);
    using Desc = dnnl::inner_product_backward_weights::primitive_desc;
    const BufferId weight = builder->NewParameterGradient(weight_);
    Add({.kind = "linear backward",
         .reads = {x_buffer_, dy},
         .writes = {weight},
         .primitive_desc =
             has_bias ? Desc(CpuEngine(), x_desc_, weight_desc_, bias_desc_,
                             y_desc_, hint, StrictAttributes())
                      : Desc(CpuEngine(), x_desc_, weight_desc_, y_desc_, hint,
                             StrictAttributes()),
         .arguments = {{DNNL_ARG_SRC, x_desc_, x_buffer_},
                       {DNNL_ARG_DIFF_WEIGHTS, weight_desc_, weight},
                       {DNNL_ARG_DIFF_DST, y_desc_, dy}}},
        {DNNL_ARG_DIFF_BIAS,
         has_bias ? builder->NewParameterGradient(bias_) : kNoBuffer},
        builder);
  }

  void AddInputGradient(BufferId dy, NetworkBuilder* builder) const {
    using Desc = dnnl::inner_product_backward_data::primitive_desc;
    const BufferId dx = builder->NewGradient(x_);
    const BufferId weight = builder->Parameter(weight_);
    Add({.kind = "linear backward",
         .reads = {dy, weight},
         .writes = {dx},
         .primitive_desc = Desc(CpuEngine(), x_desc_, weight_desc_, y_desc_,
                                ForwardDesc(false), StrictAttributes()),
         .arguments = {{DNNL_ARG_DIFF_SRC, x_desc_, dx},
                       {DNNL_ARG_WEIGHTS, weight_desc_, weight},
                       {DNNL_ARG_DIFF_DST, y_desc_, dy}}},
        {0, kNoBuffer}, builder);
  }

  // Appends the step with its bias and its scratchpad.
  void Add(NetworkStep step, const Bias& bias, NetworkBuilder* builder) const {
    Schedule& schedule = builder->schedule();
    step.macs = macs_;
    if (bias.buffer != kNoBuffer) {
      const bool is_read = bias.arg == DNNL_ARG_BIAS;
      (is_read ? step.reads : step.writes).push_back(bias.buffer);
      step.arguments.push_back({bias.arg, bias_desc_, bias.buffer});
    }
    const memory::desc scratchpad = step.primitive_desc.query_md(
        dnnl::query::exec_arg_md, DNNL_ARG_SCRATCHPAD);
    if (scratchpad.get_size() > 0) {
      const BufferId buffer =
          schedule.AddBuffer(static_cast<int64_t>(scratchpad.get_size()));
      step.writes.push_back(buffer);
      step.arguments.push_back({DNNL_ARG_SCRATCHPAD, scratchpad, buffer});
    }
    schedule.Add(std::move(step));
  }

  const ProgramStep& step_;
  const std::string x_, weight_;
  std::string bias_;
  BufferId x_buffer_ = kNoBuffer;
  memory::desc x_desc_, y_desc_, weight_desc_, bias_desc_;
  double macs_ = 0;
};

}  // namespace

std::unique_ptr<NetworkGroup> MakeLinear(const ProgramStep& step) {
  return std::make_unique<Linear>(step);
}

}  // namespace convgrad::onednn
