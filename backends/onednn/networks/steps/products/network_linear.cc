// Implements a linear layer by the library's inner product, on the caller's
// weights: a reorder to blocks would take longer than the product. Computes in
// f32, whatever the activations' dtype.
#include <string>
#include <utility>

#include "backends/onednn/execution/onednn_library_step.h"
#include "backends/onednn/library/onednn_types.h"
#include "backends/onednn/networks/schedule/network_groups.h"
#include "backends/onednn/networks/steps/network_operator.h"
#include "backends/onednn/networks/steps/products/network_conv_bias.h"

namespace convgrad::onednn {
namespace {

using dnnl::memory;

class Linear final : public NetworkGroup {
 public:
  explicit Linear(const ProgramStep& step)
      : step_(step),
        x_(step.operands[0]),
        weight_(step.operands[1]),
        bias_(OperandAt(step, 2)) {}

  absl::Status Forward(NetworkBuilder* builder) override {
    const NetworkTensor x = builder->Value(x_, Form::kRows);
    const NetworkTensor y = builder->AddValue(step_.result);
    input_ = x;
    x_desc_ = DescOf(InF32(x));
    y_desc_ = DescOf(InF32(y));
    const memory::dims dims = {y.blocks.channels, x.blocks.channels};
    weight_desc_ = {dims, memory::data_type::f32, memory::format_tag::ab};
    bias_desc_ = {{dims[0]}, memory::data_type::f32, memory::format_tag::a};
    macs_ = static_cast<double>(x.blocks.batch) * dims[0] * dims[1];
    LibraryStep step =
        NewStep("linear forward", ForwardDesc(!bias_.empty()), builder);
    step.Read(DNNL_ARG_SRC, Operand(x, builder));
    step.Read(DNNL_ARG_WEIGHTS, Weight(builder));
    if (!bias_.empty()) {
      step.Read(DNNL_ARG_BIAS, {builder->Parameter(bias_), bias_desc_});
    }
    Write(DNNL_ARG_DST, y, &step, builder);
    return absl::OkStatus();
  }

  absl::Status Backward(NetworkBuilder* builder) override {
    NetworkTensor gradient = builder->Like(step_.result);
    gradient.buffer = builder->GradientOf(step_.result);
    if (gradient.buffer == kNoBuffer) return absl::OkStatus();
    const LibraryTensor dy = Operand(gradient, builder);
    AddWeightGradient(dy, builder);
    if (!bias_.empty()) {
      AddBiasGradient("linear backward", gradient,
                      builder->NewParameterGradient(bias_),
                      &builder->schedule());
    }
    AddInputGradient(dy, builder);
    return absl::OkStatus();
  }

 private:
  static NetworkTensor InF32(NetworkTensor tensor) {
    tensor.blocks.dtype = DataType::kF32;
    return tensor;
  }
  static LibraryTensor Operand(const NetworkTensor& tensor,
                               NetworkBuilder* builder) {
    const NetworkTensor wide =
        Converted(tensor, DataType::kF32, &builder->schedule());
    return {wide.buffer, DescOf(wide)};
  }
  LibraryTensor Weight(NetworkBuilder* builder) const {
    return {RoundedWeights(builder->Parameter(weight_),
                           builder->shapes().dims.at(weight_), builder->dtype(),
                           &builder->schedule()),
            weight_desc_};
  }
  // Makes the step write the result, and appends it.
  static void Write(int arg, const NetworkTensor& result, LibraryStep* step,
                    NetworkBuilder* builder) {
    NetworkTensor computed = InF32(result);
    const bool converts = result.blocks.dtype != DataType::kF32;
    if (converts) {
      computed.buffer = builder->schedule().AddBuffer(computed.blocks.bytes());
    }
    step->Write(arg, {computed.buffer, DescOf(computed)});
    step->Finish();
    if (converts) AddConversion(computed, result, &builder->schedule());
  }

  LibraryStep NewStep(absl::string_view kind, dnnl::primitive_desc_base desc,
                      NetworkBuilder* builder) const {
    return LibraryStep(
        {.kind = kind, .macs = macs_, .primitive_desc = std::move(desc)},
        &builder->schedule());
  }

  dnnl::inner_product_forward::primitive_desc ForwardDesc(bool bias) const {
    using Desc = dnnl::inner_product_forward::primitive_desc;
    const auto kind = dnnl::prop_kind::forward_training;
    return bias ? Desc(CpuEngine(), kind, x_desc_, weight_desc_, bias_desc_,
                       y_desc_, StrictAttributes())
                : Desc(CpuEngine(), kind, x_desc_, weight_desc_, y_desc_,
                       StrictAttributes());
  }

  void AddWeightGradient(const LibraryTensor& dy,
                         NetworkBuilder* builder) const {
    using Desc = dnnl::inner_product_backward_weights::primitive_desc;
    LibraryStep step = NewStep("linear backward",
                               Desc(CpuEngine(), x_desc_, weight_desc_, y_desc_,
                                    ForwardDesc(false), StrictAttributes()),
                               builder);
    step.Read(DNNL_ARG_SRC, Operand(input_, builder));
    step.Read(DNNL_ARG_DIFF_DST, dy);
    step.Write(DNNL_ARG_DIFF_WEIGHTS,
               {builder->NewParameterGradient(weight_), weight_desc_});
    step.Finish();
  }

  void AddInputGradient(const LibraryTensor& dy,
                        NetworkBuilder* builder) const {
    using Desc = dnnl::inner_product_backward_data::primitive_desc;
    LibraryStep step = NewStep("linear backward",
                               Desc(CpuEngine(), x_desc_, weight_desc_, y_desc_,
                                    ForwardDesc(false), StrictAttributes()),
                               builder);
    step.Read(DNNL_ARG_DIFF_DST, dy);
    step.Read(DNNL_ARG_WEIGHTS, Weight(builder));
    NetworkTensor dx = builder->Like(x_, Form::kRows);
    dx.buffer = builder->NewGradient(x_, Form::kRows);
    Write(DNNL_ARG_DIFF_SRC, dx, &step, builder);
  }

  const ProgramStep& step_;
  const std::string x_, weight_, bias_;
  NetworkTensor input_;
  // All f32.
  memory::desc x_desc_, weight_desc_, y_desc_, bias_desc_;
  double macs_ = 0;
};

}  // namespace

std::vector<NetworkOperator> NetworkLinear() {
  return {{Operator::kLinear, &MakeOfStep<Linear>}};
}

}  // namespace convgrad::onednn
