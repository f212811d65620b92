#include "backends/core/conv_steps.h"

#include <algorithm>
#include <utility>

namespace convgrad {
namespace {

class StepList {
 public:
  explicit StepList(const ConvOperation& operation) : operation_(operation) {}

  std::vector<ConvStep> Take();

 private:
  void AddMask();
  void AddCopy(size_t index);
  void AddPass(size_t index);
  void AddBiasSum(size_t index);
  void AddZeros();
  // Adds a step for each result among `which`, in the order of the results.
  void ForEach(std::initializer_list<Result> which,
               void (StepList::*add)(size_t index));

  StepTensor OperandTensor(Operand which) const;
  StepTensor ResultTensor(size_t index) const;
  // Returns the tensor with the output's rank.
  StepTensor Broadcast(StepTensor bias) const;
  Epilogue EpilogueOf(const ResultRequest& request) const;

  const ConvOperation& operation_;
  StepTensor gradient_;  // grad_output, masked
  std::vector<ConvStep> steps_;
};

StepTensor StepList::OperandTensor(Operand which) const {
  return {*operation_.operand(which), StepTensor::Home::kOperand,
          static_cast<int>(which)};
}

StepTensor StepList::ResultTensor(size_t index) const {
  return {operation_.results[index].descriptor, StepTensor::Home::kResult,
          static_cast<int>(index)};
}

StepTensor StepList::Broadcast(StepTensor bias) const {
  Dims& dims = bias.descriptor.dims;
  dims = BroadcastBiasDims(operation_.problem, dims);
  return bias;
}

Epilogue StepList::EpilogueOf(const ResultRequest& request) const {
  Epilogue epilogue;
  epilogue.scale = request.scale;
  if (request.which != Result::kOutput) return epilogue;
  const ConvProblem& problem = operation_.problem;
  if (problem.bias) epilogue.bias = Broadcast(OperandTensor(Operand::kBias));
  if (problem.residual) epilogue.residual = OperandTensor(Operand::kResidual);
  epilogue.relu = problem.relu;
  return epilogue;
}

void StepList::AddMask() {
  if (operation_.direction == Direction::kForward) return;
  gradient_ = OperandTensor(Operand::kGradOutput);
  if (!operation_.problem.relu) return;
  const StepTensor masked = {gradient_.descriptor,
                             StepTensor::Home::kMaskedGradient};
  steps_.emplace_back(
      MaskStep{gradient_, OperandTensor(Operand::kOutput), masked});
  gradient_ = masked;
}

void StepList::AddCopy(size_t index) {
  steps_.emplace_back(CopyStep{gradient_, ResultTensor(index),
                               operation_.results[index].scale});
}

void StepList::AddPass(size_t index) {
  const ResultRequest& request = operation_.results[index];
  const Result which = request.which;
  const StepTensor result = ResultTensor(index);
  StepTensor input =
      which == Result::kGradInput ? result : OperandTensor(Operand::kInput);
  StepTensor weight =
      which == Result::kGradWeight ? result : OperandTensor(Operand::kWeight);
  StepTensor output = which == Result::kOutput ? result : gradient_;
  if (operation_.problem.transposed) std::swap(input, output);
  steps_.emplace_back(PassStep{PassFor(operation_.problem, which),
                               std::move(input), std::move(weight),
                               std::move(output), EpilogueOf(request)});
}

void StepList::AddBiasSum(size_t index) {
  steps_.emplace_back(BiasSumStep{gradient_, Broadcast(ResultTensor(index)),
                                  operation_.results[index].scale});
}

void StepList::AddZeros() {
  for (size_t i = 0; i < operation_.results.size(); ++i) {
    if (*ByteSize(operation_.results[i].descriptor) == 0) continue;
    steps_.emplace_back(ZeroStep{ResultTensor(i)});
  }
}

std::vector<ConvStep> StepList::Take() {
  if (operation_.problem.batch == 0) {
    AddZeros();
    return std::move(steps_);
  }
  AddMask();
  ForEach({Result::kGradResidual}, &StepList::AddCopy);
  ForEach({Result::kOutput, Result::kGradInput, Result::kGradWeight},
          &StepList::AddPass);
  ForEach({Result::kGradBias}, &StepList::AddBiasSum);
  return std::move(steps_);
}

void StepList::ForEach(std::initializer_list<Result> which,
                       void (StepList::*add)(size_t index)) {
  for (size_t i = 0; i < operation_.results.size(); ++i) {
    const Result result = operation_.results[i].which;
    if (std::find(which.begin(), which.end(), result) != which.end()) {
      (this->*add)(i);
    }
  }
}

}  // namespace

std::vector<ConvStep> StepsOf(const ConvOperation& operation) {
  return StepList(operation).Take();
}

bool IsPerChannel(const ConvProblem& problem, const StepTensor& bias) {
  return bias.descriptor.dims ==
         BroadcastBiasDims(problem, PerChannelBiasDims(problem));
}

}  // namespace convgrad
