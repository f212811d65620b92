#include "backends/core/batch_slices.h"

#include <algorithm>
#include <utility>

#include "backends/core/checked_math.h"

namespace convgrad {
namespace {

// Returns `tensor` with a batch of `items`.
TensorDescriptor WithItems(TensorDescriptor tensor, int64_t items) {
  tensor.dims[0] = items;
  return tensor;
}

TensorDescriptor Addend(const TensorDescriptor& result, bool is_weight) {
  return {DataType::kF32, is_weight ? Layout::kOIX : Layout::kNCX, result.dims};
}

bool BiasHasBatch(const ConvProblem& problem, const TensorDescriptor& bias) {
  // An extent of 1 is a broadcast axis; where the batch is 1, either will do.
  return bias.dims.size() == OutputDims(problem).size() &&
         bias.dims[0] == problem.batch && problem.batch != 1;
}

// Requires: the operation has it.
bool HasBatch(const ConvOperation& operation, Operand which) {
  if (which == Operand::kWeight) return false;
  return which != Operand::kBias ||
         BiasHasBatch(operation.problem, *operation.operand(which));
}

// Returns whether every item adds to the result.
bool IsSum(const ConvProblem& problem, const ResultRequest& request) {
  if (request.which == Result::kGradWeight) return true;
  return request.which == Result::kGradBias &&
         !BiasHasBatch(problem, request.descriptor);
}

void AddBytes(int64_t* sum, const TensorDescriptor& tensor) {
  *sum = SaturatingAdd(*sum, ByteSize(tensor).value_or(0));
}

}  // namespace

BatchSlices::BatchSlices(ConvOperation operation, int64_t items)
    : operation_(std::move(operation)) {
  const int64_t batch = operation_.problem.batch;
  items_ = std::min(items, std::max<int64_t>(batch, 1));
  count_ = std::max<int64_t>(batch / items_ + (batch % items_ != 0), 1);
}

bool BatchSlices::IsCut(Operand operand) const {
  return HasBatch(operation_, operand);
}

bool BatchSlices::IsCut(Result result) const {
  return !IsSum(operation_.problem, *operation_.result(result));
}

int64_t BatchSlices::ItemsOf(int64_t slice) const {
  return std::min(items_, operation_.problem.batch - slice * items_);
}

ByteRange BatchSlices::RangeOf(const TensorDescriptor& tensor,
                               int64_t slice) const {
  const int64_t item_bytes = ByteSize(WithItems(tensor, 1)).value_or(0);
  const int64_t begin = slice * items_ * item_bytes;
  return {begin, begin + ItemsOf(slice) * item_bytes};
}

ConvOperation BatchSlices::SliceOperation(int64_t slice) const {
  const int64_t items = ItemsOf(slice);
  ConvOperation part = operation_;
  part.problem.batch = items;
  for (Operand which : kAllOperands) {
    auto& tensor = part.operand(which);
    if (tensor && IsCut(which)) tensor = WithItems(*tensor, items);
  }
  for (ResultRequest& request : part.results) {
    if (IsCut(request.which)) {
      request.descriptor = WithItems(request.descriptor, items);
    } else {
      const bool is_weight = request.which == Result::kGradWeight;
      request.descriptor = Addend(request.descriptor, is_weight);
      request.scale = 1;
    }
  }
  if (part.problem.bias) {
    const bool forward = part.direction == Direction::kForward;
    part.problem.bias = forward
                            ? part.operand(Operand::kBias)->dims
                            : part.result(Result::kGradBias)->descriptor.dims;
  }
  return part;
}

int64_t ItemBytes(const ConvOperation& operation) {
  const ConvProblem& problem = operation.problem;
  int64_t bytes = 0;
  for (Operand which : kAllOperands) {
    const auto& tensor = operation.operand(which);
    if (!tensor || !HasBatch(operation, which)) continue;
    AddBytes(&bytes, WithItems(*tensor, 1));
  }
  for (const ResultRequest& request : operation.results) {
    if (IsSum(problem, request)) continue;
    AddBytes(&bytes, WithItems(request.descriptor, 1));
  }
  return bytes;
}

int64_t AddendBytes(const ConvOperation& operation) {
  int64_t bytes = 0;
  for (const ResultRequest& request : operation.results) {
    if (!IsSum(operation.problem, request)) continue;
    AddBytes(&bytes, Addend(request.descriptor, /*is_weight=*/true));
  }
  return bytes;
}

}  // namespace convgrad
