// What a piece of work computes, without its bytes. Scheduling, memory and
// telemetry know an operation by this interface alone, so that a new kind of
// operation changes none of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "backends/core/tensor_descriptor.h"

namespace convgrad {

// What an operation does with one of its tensors.
struct TensorUse {
  // Null: the operation has no tensor at this position.
  const TensorDescriptor* tensor = nullptr;
  // Whether the tensor's first axis is the batch, so that a slice of the
  // operation uses a slice of the tensor. Results without a batch are sums over
  // it.
  bool has_batch = false;
  // Of a result: finite; multiplied in f32 before the one rounding.
  float scale = 1;
};
using TensorUses = absl::InlinedVector<TensorUse, 8>;

// Immutable once shared. Thread-safe.
class Operation {
 public:
  virtual ~Operation() = default;

  // Returns what the operation is called in metrics, one of a few names:
  // "forward", "backward". The name lives as long as the process.
  virtual absl::string_view name() const = 0;
  // Returns the operation as one line. Operations with equal texts are equal:
  // the text is part of a plan's key.
  virtual std::string text() const = 0;
  // Returns the dtype of the operands, by which metrics and estimates tell
  // operations apart.
  virtual DataType dtype() const = 0;
  // Returns twice the multiply-adds; saturates.
  virtual int64_t flops() const = 0;
  // Returns the multiply-adds, where those count for more that a modest machine
  // needs longer for. Never measured: slices, and so bits, follow from it.
  virtual double nominal_macs() const {
    return static_cast<double>(flops()) / 2;
  }

  // Return the tensors, by their positions in RunBuffers. They live as long as
  // the operation.
  virtual TensorUses OperandUses() const = 0;
  virtual TensorUses ResultUses() const = 0;
  // Returns the positions of the operands that tend to come again with the same
  // bytes, so that their prepared form may be worth keeping; none by default.
  virtual std::vector<size_t> weight_positions() const { return {}; }

  // Returns the number of items that the operation may be cut into: 1 if it
  // can't be cut, 0 if the batch is empty.
  virtual int64_t batch() const { return 1; }
  // Returns the same operation on `items` items. Of results without a batch it
  // computes addends: f32, row-major, unscaled. An operation that can't be cut
  // returns itself. Requires: 0 <= items <= batch().
  virtual std::unique_ptr<const Operation> WithBatch(int64_t items) const = 0;

 protected:
  Operation() = default;
  // Protected, so that no copy loses what its kind adds.
  Operation(const Operation&) = default;
  Operation(Operation&&) = default;
  Operation& operator=(const Operation&) = default;
  Operation& operator=(Operation&&) = default;
};

}  // namespace convgrad
