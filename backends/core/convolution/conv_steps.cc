#include "backends/core/convolution/conv_steps.h"

#include <utility>

namespace convgrad {
namespace {

StepTensor OperandTensor(const ConvOperation& operation, Operand which) {
  return {*operation.operand(which), StepTensor::Home::kOperand,
          static_cast<int>(which)};
}

// Returns `bias` with the output's rank.
StepTensor Broadcast(const ConvProblem& problem, StepTensor bias) {
  Dims& dims = bias.descriptor.dims;
  dims = BroadcastBiasDims(problem, dims);
  return bias;
}

Epilogue EpilogueOf(const ConvOperation& operation,
                    const ResultRequest& request) {
  Epilogue epilogue;
  epilogue.scale = request.scale;
  if (request.which != Result::kOutput) return epilogue;
  const ConvProblem& problem = operation.problem;
  if (problem.bias) {
    epilogue.bias =
        Broadcast(problem, OperandTensor(operation, Operand::kBias));
  }
  if (problem.residual) {
    epilogue.residual = OperandTensor(operation, Operand::kResidual);
  }
  epilogue.relu = problem.relu;
  return epilogue;
}

PassStep PassOf(const ConvOperation& operation, const ResultRequest& request,
                const StepTensor& result, const StepTensor& gradient) {
  const auto tensor = [&](Result computed, Operand read) {
    return request.which == computed ? result : OperandTensor(operation, read);
  };
  StepTensor input = tensor(Result::kGradInput, Operand::kInput);
  StepTensor output = request.which == Result::kOutput ? result : gradient;
  if (operation.problem.transposed) std::swap(input, output);
  return {PassFor(operation.problem, request.which), std::move(input),
          tensor(Result::kGradWeight, Operand::kWeight), std::move(output),
          EpilogueOf(operation, request)};
}

}  // namespace

std::vector<ConvStep> StepsOf(const ConvOperation& operation) {
  const ConvProblem& problem = operation.problem;
  std::vector<ConvStep> steps, passes, sums;
  StepTensor gradient;
  if (operation.direction == Direction::kBackward) {
    gradient = OperandTensor(operation, Operand::kGradOutput);
    if (problem.relu) {
      StepTensor masked = {gradient.descriptor,
                           StepTensor::Home::kMaskedGradient};
      steps.emplace_back(MaskStep{
          gradient, OperandTensor(operation, Operand::kOutput), masked});
      gradient = std::move(masked);
    }
  }
  for (size_t i = 0; i < operation.results.size(); ++i) {
    const ResultRequest& request = operation.results[i];
    const StepTensor result = {request.descriptor, StepTensor::Home::kResult,
                               static_cast<int>(i)};
    if (request.which == Result::kGradResidual) {
      steps.emplace_back(CopyStep{gradient, result, request.scale});
    } else if (request.which == Result::kGradBias) {
      sums.emplace_back(
          BiasSumStep{gradient, Broadcast(problem, result), request.scale});
    } else {
      passes.emplace_back(PassOf(operation, request, result, gradient));
    }
  }
  steps.insert(steps.end(), passes.begin(), passes.end());
  steps.insert(steps.end(), sums.begin(), sums.end());
  return steps;
}

bool IsPerChannel(const ConvProblem& problem, const StepTensor& bias) {
  return bias.descriptor.dims ==
         BroadcastBiasDims(problem, PerChannelBiasDims(problem));
}

}  // namespace convgrad
