// An operation cut along the batch into operations that can be computed one
// after the other.
#pragma once

#include <cstdint>

#include "backends/core/conv_operation.h"

namespace convgrad {

// Bytes [begin, end) of a packed tensor.
struct ByteRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
};

// Value type; immutable.
class BatchSlices {
 public:
  // Requires: Validate(operation).ok(), no operand that isn't needed, items >=
  // 1.
  BatchSlices(ConvOperation operation, int64_t items);

  const ConvOperation& operation() const { return operation_; }
  // At least 1: an empty batch is one slice of 0 items.
  int64_t count() const { return count_; }
  // Of every slice but the last, which may have fewer.
  int64_t items() const { return items_; }

  // Returns whether the tensor is cut: its first axis is the batch. Others
  // belong to no slice: weight, its gradient, and a bias that is the same for
  // every item. Requires: the operation has it.
  bool IsCut(Operand operand) const;
  bool IsCut(Result result) const;

  // Returns where the bytes of `slice` lie in a tensor that is cut.
  ByteRange RangeOf(const TensorDescriptor& tensor, int64_t slice) const;

  // Returns what computes `slice`. Results that aren't cut are f32, OIX or
  // row-major, of scale 1: addends of a sum.
  ConvOperation SliceOperation(int64_t slice) const;

 private:
  int64_t ItemsOf(int64_t slice) const;

  ConvOperation operation_;
  int64_t items_;
  int64_t count_;
};

// Returns the packed bytes of what `operation` has for each item of its batch,
// operands and results; saturates. Requires: as BatchSlices.
int64_t ItemBytes(const ConvOperation& operation);

// Returns the f32 bytes of the results that every item adds to; saturates.
// Requires: as BatchSlices.
int64_t AddendBytes(const ConvOperation& operation);

}  // namespace convgrad
