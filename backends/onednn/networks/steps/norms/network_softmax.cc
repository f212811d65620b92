// Implements softmax and log_softmax.
#include <vector>

#include "backends/kernels/tokens/row_softmax.h"
#include "backends/onednn/networks/schedule/network_groups.h"
#include "backends/onednn/networks/steps/network_operator.h"

namespace convgrad::onednn {
namespace {

class Softmax final : public NetworkGroup {
 public:
  Softmax(const ProgramStep& step, const ProgramShapes& shapes)
      : step_(step), axis_(*StepDims(step, shapes).Axis("axis")) {}

  void Forward(NetworkBuilder* builder) override {
    const NetworkTensor x = builder->Value(step_.operands[0], Form::kRows);
    y_ = builder->AddValue(step_.result).buffer;
    softmax_.length = x.dims[axis_];
    softmax_.inner = 1;
    for (size_t i = axis_ + 1; i < x.dims.size(); ++i) {
      softmax_.inner *= x.dims[i];
    }
    softmax_.outer = x.blocks.size() / softmax_.length / softmax_.inner;
    softmax_.dtype = x.blocks.dtype;
    softmax_.is_logarithm = step_.op == Operator::kLogSoftmax;
    builder->Add("softmax forward", {x.buffer}, {y_},
                 [=, softmax = softmax_, y = y_](const RunContext& context) {
                   SoftmaxRows(softmax, context.At(x.buffer), context.At(y),
                               context.parts());
                 });
  }

  void Backward(NetworkBuilder* builder) override {
    const BufferId dy = builder->GradientOf(step_.result).buffer;
    const BufferId dx =
        builder->NewGradient(step_.operands[0], Form::kRows).buffer;
    builder->Add("softmax backward", {dy, y_}, {dx},
                 [=, softmax = softmax_, y = y_](const RunContext& context) {
                   SoftmaxRowsBackward(softmax, context.At(dy), context.At(y),
                                       context.At(dx), context.parts());
                 });
  }

 private:
  const ProgramStep& step_;
  const size_t axis_;
  RowSoftmax softmax_;
  BufferId y_ = kNoBuffer;
};

}  // namespace

std::vector<NetworkOperator> NetworkSoftmax() {
  return {{Operator::kSoftmax, &MakeOfStep<Softmax>},
          {Operator::kLogSoftmax, &MakeOfStep<Softmax>}};
}

}  // namespace convgrad::onednn
