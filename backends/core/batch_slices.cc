#include "backends/core/batch_slices.h"

#include <algorithm>
#include <utility>

#include "backends/core/checked_math.h"

namespace convgrad {
namespace {

// Returns the packed bytes of one item of `tensor`.
int64_t BytesOfItem(TensorDescriptor tensor) {
  tensor.dims[0] = 1;
  return ByteSize(tensor).value_or(0);
}

}  // namespace

BatchSlices::BatchSlices(std::shared_ptr<const Operation> operation,
                         int64_t items)
    : operation_(std::move(operation)) {
  const int64_t batch = operation_->batch();
  items_ = std::min(items, std::max<int64_t>(batch, 1));
  count_ = std::max<int64_t>(batch / items_ + (batch % items_ != 0), 1);
}

int64_t BatchSlices::ItemsOf(int64_t slice) const {
  return std::min(items_, operation_->batch() - slice * items_);
}

ByteRange BatchSlices::RangeOf(const TensorDescriptor& tensor,
                               int64_t slice) const {
  const int64_t item_bytes = BytesOfItem(tensor);
  const int64_t begin = slice * items_ * item_bytes;
  return {begin, begin + ItemsOf(slice) * item_bytes};
}

std::shared_ptr<const Operation> BatchSlices::SliceOperation(
    int64_t slice) const {
  std::shared_ptr<const Operation> part = operation_->WithBatch(ItemsOf(slice));
  return part == nullptr ? operation_ : part;
}

int64_t ItemBytes(const Operation& operation) {
  int64_t bytes = 0;
  for (const TensorUses& uses :
       {operation.OperandUses(), operation.ResultUses()}) {
    for (const TensorUse& use : uses) {
      if (!use.has_batch) continue;
      bytes = SaturatingAdd(bytes, BytesOfItem(*use.tensor));
    }
  }
  return bytes;
}

int64_t AddendBytes(const Operation& operation) {
  int64_t bytes = 0;
  for (const TensorUse& use : operation.ResultUses()) {
    if (use.has_batch) continue;
    const TensorDescriptor addend = {DataType::kF32, Layout::kOIX,
                                     use.tensor->dims};
    bytes = SaturatingAdd(bytes, ByteSize(addend).value_or(0));
  }
  return bytes;
}

}  // namespace convgrad
