#include "backends/core/convolution/conv_operation.h"

namespace convgrad {
namespace {

bool BiasHasBatch(const ConvProblem& problem, const TensorDescriptor& bias) {
  // An extent of 1 is a broadcast axis. If the batch is 1, both are correct.
  return bias.dims.size() == OutputDims(problem).size() &&
         bias.dims[0] == problem.batch && problem.batch != 1;
}

bool HasBatch(const ConvOperation& operation, Operand which) {
  if (which == Operand::kWeight) return false;
  return which != Operand::kBias ||
         BiasHasBatch(operation.problem, *operation.operand(which));
}

bool HasBatch(const ConvProblem& problem, const ResultRequest& request) {
  if (request.which == Result::kGradWeight) return false;
  return request.which != Result::kGradBias ||
         BiasHasBatch(problem, request.descriptor);
}

}  // namespace

TensorUses ConvOperation::OperandUses() const {
  TensorUses uses(kOperandCount);
  for (Operand which : kAllOperands) {
    if (!operand(which)) continue;
    uses[PositionOf(which)] = {&*operand(which), HasBatch(*this, which)};
  }
  return uses;
}

TensorUses ConvOperation::ResultUses() const {
  TensorUses uses;
  for (const ResultRequest& request : results) {
    uses.push_back(
        {&request.descriptor, HasBatch(problem, request), request.scale});
  }
  return uses;
}

std::unique_ptr<const Operation> ConvOperation::WithBatch(int64_t items) const {
  auto part = std::make_unique<ConvOperation>(*this);
  part->problem.batch = items;
  for (Operand which : kAllOperands) {
    auto& tensor = part->operand(which);
    if (tensor && HasBatch(*this, which)) tensor->dims[0] = items;
  }
  for (ResultRequest& request : part->results) {
    TensorDescriptor& result = request.descriptor;
    if (HasBatch(problem, request)) {
      result.dims[0] = items;
    } else {
      const bool is_weight = request.which == Result::kGradWeight;
      result = {DataType::kF32, is_weight ? Layout::kOIX : Layout::kNCX,
                result.dims};
      request.scale = 1;
    }
  }
  if (problem.bias) {
    const bool forward = direction == Direction::kForward;
    part->problem.bias = forward
                             ? part->operand(Operand::kBias)->dims
                             : part->result(Result::kGradBias)->descriptor.dims;
  }
  return part;
}

}  // namespace convgrad
