// Implements a linear layer by the library's inner product and matmul.
#include <string>
#include <utility>

#include "backends/onednn/execution/onednn_library_step.h"
#include "backends/onednn/library/onednn_types.h"
#include "backends/onednn/networks/schedule/network_bias.h"
#include "backends/onednn/networks/schedule/network_groups.h"
#include "backends/onednn/networks/steps/network_operator.h"

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

  void Forward(NetworkBuilder* builder) override {
    const NetworkTensor x = builder->Value(x_, Form::kRows);
    const NetworkTensor y = builder->AddValue(step_.result);
    input_ = x;
    computes_in_ = DtypeFor(x, y, *builder);
    x_desc_ = DescInDtype(x);
    y_desc_ = DescInDtype(y);
    const memory::dims dims = {y.blocks.channels, x.blocks.channels};
    weight_desc_ = {dims, memory::data_type::f32, memory::format_tag::ab};
    memory::desc bias;
    if (!bias_.empty()) {
      bias = {{dims[0]}, memory::data_type::f32, memory::format_tag::a};
    }
    macs_ = static_cast<double>(x.blocks.batch) * dims[0] * dims[1];
    // In f32 the library's product takes 0.76 to 1.02 of the time of its inner
    // product with 788 rows or more, and 0.34 to 0.8 with 64 (AMD Zen 4, 96 to
    // 3072 channels). Its gradients take 0.7 to 2.5 times as long (Xeon, 1 to
    // 1576 rows, 64 to 4096 channels), mostly more than 1.
    const bool is_product = computes_in_ == DataType::kF32;
    if (is_product && !bias_.empty()) bias = bias.reshape({1, dims[0]});
    LibraryStep step =
        NewStep("linear forward",
                is_product ? ProductDesc(bias)
                           : ForwardDesc(x_desc_, weight_desc_, bias, y_desc_),
                builder);
    step.Read(DNNL_ARG_SRC, Operand(x, builder));
    step.Read(DNNL_ARG_WEIGHTS,
              is_product ? Turned(Weight(builder)) : Weight(builder));
    if (!bias_.empty()) {
      step.Read(DNNL_ARG_BIAS, {builder->Parameter(bias_), bias});
    }
    Write(DNNL_ARG_DST, y, &step, builder);
  }

  void Backward(NetworkBuilder* builder) override {
    const NetworkTensor gradient = builder->GradientOf(step_.result);
    const LibraryTensor dy = Operand(gradient, builder);
    AddWeightGradient(dy, builder);
    if (!bias_.empty()) {
      AddBiasGradient("linear backward", gradient,
                      builder->NewParameterGradient(bias_), builder);
    }
    AddInputGradient(dy, builder);
  }

 private:
  // Returns bf16 if the activations have it and the CPU is faster in it. The
  // library pads the sums' operands in pairs of channels with what comes next
  // in memory, times 0, so both counts of channels must be even.
  static DataType DtypeFor(const NetworkTensor& x, const NetworkTensor& y,
                           const NetworkBuilder& builder) {
    const bool is_native =
        builder.options().native_bf16 && builder.dtype() == DataType::kBF16 &&
        x.blocks.channels % 2 == 0 && y.blocks.channels % 2 == 0;
    return is_native ? DataType::kBF16 : DataType::kF32;
  }

  memory::desc DescInDtype(NetworkTensor tensor) const {
    tensor.blocks.dtype = computes_in_;
    return DescOf(tensor);
  }
  LibraryTensor Operand(const NetworkTensor& tensor,
                        NetworkBuilder* builder) const {
    const NetworkTensor converted = Converted(tensor, computes_in_, builder);
    return {converted.buffer, DescOf(converted)};
  }
  LibraryTensor Weight(NetworkBuilder* builder) const {
    BufferId weight = builder->Parameter(weight_);
    if (computes_in_ != builder->dtype()) {
      weight = RoundedWeights(weight, builder->shapes().dims.at(weight_),
                              builder->dtype(), builder);
    }
    return {weight, weight_desc_};
  }
  // Returns the descriptor of a primitive's weight, like `weight`, which the
  // caller has: the same in f32, the library's choice in bf16.
  memory::desc WeightLike(const memory::desc& weight,
                          memory::data_type type) const {
    if (computes_in_ == DataType::kF32) return weight;
    return {weight.get_dims(), type, memory::format_tag::any};
  }
  // Makes the step write the result, and appends it.
  void Write(int arg, const NetworkTensor& result, LibraryStep* step,
             NetworkBuilder* builder) const {
    const NetworkTensor computed = ComputedIn(computes_in_, result, builder);
    step->Write(arg, {computed.buffer, DescOf(computed)});
    step->Finish();
    AddConversion(computed, result, builder);
  }

  LibraryStep NewStep(absl::string_view kind, dnnl::primitive_desc_base desc,
                      NetworkBuilder* builder) const {
    return LibraryStep(
        {.kind = kind, .macs = macs_, .primitive_desc = std::move(desc)},
        builder);
  }

  static LibraryTensor Turned(LibraryTensor matrix) {
    matrix.desc = matrix.desc.permute_axes({1, 0});
    return matrix;
  }
  // Return y = x weight' + bias, without a bias if its descriptor is empty.
  dnnl::primitive_desc_base ProductDesc(const memory::desc& bias) const {
    return dnnl::matmul::primitive_desc(CpuEngine(), x_desc_,
                                        weight_desc_.permute_axes({1, 0}), bias,
                                        y_desc_, StrictAttributes());
  }
  dnnl::inner_product_forward::primitive_desc ForwardDesc(
      const memory::desc& x, const memory::desc& weight,
      const memory::desc& bias, const memory::desc& y) const {
    return {CpuEngine(),
            dnnl::prop_kind::forward_training,
            x,
            WeightLike(weight, TypeOf(computes_in_)),
            bias,
            y,
            StrictAttributes()};
  }

  void AddWeightGradient(const LibraryTensor& dy,
                         NetworkBuilder* builder) const {
    const LibraryTensor x = Operand(input_, builder);
    const LibraryTensor dw = {builder->NewParameterGradient(weight_),
                              weight_desc_};
    // In bf16 the library's product is up to 3.5 times as fast as its gradient,
    // unless there are few rows (Xeon with AMX: 1576 rows, 384 to 1536
    // channels, 1.0 and 3.2 ms; 16 rows, 4096 to 4096 channels, 4.0 and 1.9
    // ms).
    constexpr int64_t kManyRows = 64;
    if (computes_in_ == DataType::kBF16 && input_.blocks.batch >= kManyRows) {
      return AddProduct(dy, x, dw, builder);
    }
    using Desc = dnnl::inner_product_backward_weights::primitive_desc;
    LibraryStep step =
        NewStep("linear backward",
                Desc(CpuEngine(), x_desc_,
                     WeightLike(weight_desc_, memory::data_type::f32), y_desc_,
                     ForwardDesc(x_desc_, weight_desc_, {}, y_desc_),
                     StrictAttributes()),
                builder);
    step.Read(DNNL_ARG_SRC, x);
    step.Read(DNNL_ARG_DIFF_DST, dy);
    step.Write(DNNL_ARG_DIFF_WEIGHTS, dw);
    step.Finish();
  }

  // Appends dw = dy' x.
  void AddProduct(const LibraryTensor& dy, const LibraryTensor& x,
                  const LibraryTensor& dw, NetworkBuilder* builder) const {
    const LibraryTensor turned = Turned(dy);
    LibraryStep step =
        NewStep("linear backward",
                dnnl::matmul::primitive_desc(CpuEngine(), turned.desc, x.desc,
                                             dw.desc, StrictAttributes()),
                builder);
    step.Read(DNNL_ARG_SRC, turned);
    step.Read(DNNL_ARG_WEIGHTS, x);
    step.Write(DNNL_ARG_DST, dw);
    step.Finish();
  }

  void AddInputGradient(const LibraryTensor& dy,
                        NetworkBuilder* builder) const {
    // In bf16 it is the forward of a layer with the turned weight, which the
    // library computes 2.4 times as fast as its backward-data (AMD Zen 4, 788
    // rows, 768 to 3072 channels).
    const bool as_forward = computes_in_ == DataType::kBF16;
    const LibraryTensor weight =
        as_forward ? Turned(Weight(builder)) : Weight(builder);
    LibraryStep step =
        NewStep("linear backward",
                as_forward ? ForwardDesc(y_desc_, weight.desc, {}, x_desc_)
                           : BackwardDataDesc(),
                builder);
    step.Read(as_forward ? DNNL_ARG_SRC : DNNL_ARG_DIFF_DST, dy);
    step.Read(DNNL_ARG_WEIGHTS, weight);
    const NetworkTensor dx = builder->NewGradient(x_, Form::kRows);
    Write(as_forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_SRC, dx, &step, builder);
  }

  dnnl::primitive_desc_base BackwardDataDesc() const {
    return dnnl::inner_product_backward_data::primitive_desc(
        CpuEngine(), x_desc_, weight_desc_, y_desc_,
        ForwardDesc(x_desc_, weight_desc_, {}, y_desc_), StrictAttributes());
  }

  const ProgramStep& step_;
  const std::string x_, weight_, bias_;
  NetworkTensor input_;
  DataType computes_in_ = DataType::kF32;
  // The activations' in `computes_in_`, and the caller's weight.
  memory::desc x_desc_, y_desc_, weight_desc_;
  double macs_ = 0;
};

}  // namespace

std::vector<NetworkOperator> NetworkLinear() {
  return {{Operator::kLinear, &MakeOfStep<Linear>}};
}

}  // namespace convgrad::onednn
