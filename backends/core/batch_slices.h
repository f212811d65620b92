// `BatchSlices` cuts an operation along its batch into operations that can be
// computed one after the other.
#pragma once

#include <cstdint>
#include <memory>

#include "backends/core/operation.h"

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
  // Requires: a valid operation, items >= 1.
  BatchSlices(std::shared_ptr<const Operation> operation, int64_t items);

  const Operation& operation() const { return *operation_; }
  // Returns at least 1: an empty batch is one slice of 0 items.
  int64_t count() const { return count_; }
  // Returns the items of every slice except the last, which may have fewer.
  int64_t items() const { return items_; }

  // Returns the byte range of `slice` in a tensor that has the batch axis.
  ByteRange RangeOf(const TensorDescriptor& tensor, int64_t slice) const;
  // Returns the bytes of the largest slice of a tensor that has the batch axis.
  int64_t SliceBytes(const TensorDescriptor& tensor) const {
    return RangeOf(tensor, 0).size();
  }

  // Returns the operation that computes `slice`: Operation::WithBatch, or the
  // operation itself if it can't be cut.
  std::shared_ptr<const Operation> SliceOperation(int64_t slice) const;

 private:
  int64_t ItemsOf(int64_t slice) const;

  std::shared_ptr<const Operation> operation_;
  int64_t items_;
  int64_t count_;
};

// Returns the packed bytes of the operands and results of one batch item;
// saturates. Requires: as BatchSlices.
int64_t ItemBytes(const Operation& operation);

// Returns the f32 bytes of the results that sum over the batch; saturates.
// Requires: as BatchSlices.
int64_t AddendBytes(const Operation& operation);

}  // namespace convgrad
