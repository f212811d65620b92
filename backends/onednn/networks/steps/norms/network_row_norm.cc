// Implements layer_norm and rms_norm.
#include <string>
#include <vector>

#include "backends/kernels/tokens/row_norm.h"
#include "backends/onednn/networks/schedule/network_groups.h"
#include "backends/onednn/networks/steps/network_operator.h"

namespace convgrad::onednn {
namespace {

class RowNormGroup final : public NetworkGroup {
 public:
  explicit RowNormGroup(const ProgramStep& step)
      : step_(step), weight_(OperandAt(step, 1)), bias_(OperandAt(step, 2)) {}

  void Forward(NetworkBuilder* builder) override {
    form_ = FormOf(step_.operands[0], *builder);
    const NetworkTensor x = builder->Value(step_.operands[0], form_);
    const NetworkTensor result = builder->AddValue(step_.result);
    const BufferId y = result.buffer;
    SetNorm(x);
    norm_.x = PlacesOf(x);
    norm_.y = PlacesOf(result);
    x_ = x.buffer;
    moments_ = builder->AddArray<double>(norm_.moments());
    const BufferId weight = builder->Parameter(weight_);
    const BufferId bias = builder->Parameter(bias_);
    builder->Add("row norm forward", {x_, weight, bias}, {y, moments_},
                 [=, norm = norm_, x = x_,
                  moments = moments_](const RunContext& context) {
                   NormalizeRows(norm,
                                 {context.At(x), context.Read<float>(weight),
                                  context.Read<float>(bias), context.At(y),
                                  context.Write<double>(moments)},
                                 context.parts());
                 });
  }

  void Backward(NetworkBuilder* builder) override {
    const BufferId dy = builder->GradientOf(step_.result).buffer;
    const BufferId weight = builder->Parameter(weight_);
    const BufferId dx = builder->NewGradient(step_.operands[0], form_).buffer;
    const BufferId dw = NewParameterGradient(weight_, builder);
    const BufferId db = NewParameterGradient(bias_, builder);
    const BufferId scratch = builder->AddArray<double>(norm_.scratch());
    builder->Add(
        "row norm backward", {dy, x_, moments_, weight}, {dx, scratch, dw, db},
        [=, norm = norm_, x = x_,
         moments = moments_](const RunContext& context) {
          NormalizeRowsBackward(
              norm,
              {context.At(dy), context.At(x), context.Read<float>(weight),
               context.Read<double>(moments), context.At(dx),
               context.Write<float>(dw), context.Write<float>(db),
               context.Write<double>(scratch)},
              context.parts());
        });
  }

 private:
  // Returns the form in which to read the operand. A turned image isn't
  // converted.
  Form FormOf(const std::string& name, const NetworkBuilder& builder) const {
    const bool is_turned = builder.Like(name).form == Form::kTurnedImage;
    return is_turned && IntAttribute(step_, "axes") == 1 ? Form::kTurnedImage
                                                         : Form::kRows;
  }

  static RowPlaces PlacesOf(const NetworkTensor& tensor) {
    const ChannelBlocks& blocks = tensor.blocks;
    if (blocks.block == blocks.channels) return {};
    return {blocks.block, blocks.spatial};
  }

  void SetNorm(const NetworkTensor& x) {
    const auto axes = static_cast<size_t>(IntAttribute(step_, "axes"));
    norm_.length = 1;
    for (size_t i = x.dims.size() - axes; i < x.dims.size(); ++i) {
      norm_.length *= x.dims[i];
    }
    norm_.rows =
        x.blocks.batch * x.blocks.channels * x.blocks.spatial / norm_.length;
    norm_.dtype = x.blocks.dtype;
    norm_.is_centred = step_.op == Operator::kLayerNorm;
    norm_.eps = FloatAttribute(step_, "eps");
  }

  static BufferId NewParameterGradient(const std::string& name,
                                       NetworkBuilder* builder) {
    return name.empty() ? kNoBuffer : builder->NewParameterGradient(name);
  }

  const ProgramStep& step_;
  const std::string weight_, bias_;
  RowNorm norm_;
  Form form_ = Form::kRows;
  BufferId x_ = kNoBuffer, moments_ = kNoBuffer;
};

}  // namespace

std::vector<NetworkOperator> NetworkRowNorms() {
  return {{Operator::kLayerNorm, &MakeOfStep<RowNormGroup>},
          {Operator::kRmsNorm, &MakeOfStep<RowNormGroup>}};
}

}  // namespace convgrad::onednn
