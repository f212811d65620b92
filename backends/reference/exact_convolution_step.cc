// Computes conv, conv_transpose and linear as steps of a program.
#include "backends/core/convolution/conv_operation.h"
#include "backends/core/program/operators/convolution.h"
#include "backends/reference/exact_convolution.h"
#include "backends/reference/exact_operators.h"

namespace convgrad {
namespace {

constexpr size_t kWeight = 1;
constexpr size_t kBias = 2;

ConvOperation OperationOf(const StepData& data, Direction direction) {
  return WholeOperation(ProblemOf(*data.step, *data.shapes), direction,
                        DataType::kF32, Layout::kNCX);
}

Values CopyOf(absl::Span<const double> values) {
  return {values.begin(), values.end()};
}

ExactOperands OperandsOf(const StepData& data) {
  ExactOperands operands;
  operands[PositionOf(Operand::kInput)] = CopyOf(data.operands[0]);
  operands[PositionOf(Operand::kWeight)] = CopyOf(data.operands[kWeight]);
  if (data.Has(kBias)) {
    operands[PositionOf(Operand::kBias)] = CopyOf(data.operands[kBias]);
  }
  return operands;
}

Values ConvolutionForward(const StepData& data) {
  const ConvOperation operation = OperationOf(data, Direction::kForward);
  ExactOperands operands = OperandsOf(data);
  data.WriteTerms(MultiplyAdds(operation.problem), CountOf(data.result_dims()),
                  &operands[PositionOf(Operand::kInput)]);
  return ExactResult(operation, Result::kOutput, operands);
}

StepGradients ConvolutionBackward(const StepData& data,
                                  absl::Span<const double> gradient) {
  const ConvOperation operation = OperationOf(data, Direction::kBackward);
  ExactOperands operands = OperandsOf(data);
  constexpr Result kResults[] = {Result::kGradInput, Result::kGradWeight,
                                 Result::kGradBias};
  StepGradients gradients(data.operands.size());
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!data.Wants(i)) continue;
    Values& dy = operands[PositionOf(Operand::kGradOutput)];
    dy = CopyOf(gradient);
    data.WriteTerms(
        i == kBias ? std::ssize(dy) : MultiplyAdds(operation.problem),
        CountOf(data.dims(i)), &dy);
    gradients[i] = ExactResult(operation, kResults[i], operands);
  }
  return gradients;
}

}  // namespace

std::vector<ExactOperator> ExactConvolutions() {
  return {{Operator::kConv, &ConvolutionForward, &ConvolutionBackward},
          {Operator::kConvTranspose, &ConvolutionForward, &ConvolutionBackward},
          {Operator::kLinear, &ConvolutionForward, &ConvolutionBackward}};
}

}  // namespace convgrad
