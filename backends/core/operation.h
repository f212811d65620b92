// `Operation` describes a computation without its bytes. Scheduling, memory and
// telemetry use only this interface, so a new kind of operation requires no
// change to them.
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

// How an operation uses one of its tensors.
struct TensorUse {
  // Null: the operation has no tensor at this position.
  const TensorDescriptor* tensor = nullptr;
  // True if the tensor's first axis is the batch. A slice of the operation then
  // uses a slice of the tensor. Results without a batch axis are sums over the
  // batch.
  bool has_batch = false;
  // Only for results: finite, multiplied in f32 before the single rounding.
  float scale = 1;
};
using TensorUses = absl::InlinedVector<TensorUse, 8>;

// Immutable once shared. Thread-safe.
class Operation {
 public:
  virtual ~Operation() = default;

  // Returns the operation's name in metrics, one of a few: "forward",
  // "backward". The name has static lifetime.
  virtual absl::string_view name() const = 0;
  // Returns the operation as one line. Equal texts mean equal operations,
  // because the text is part of a plan's key.
  virtual std::string text() const = 0;
  // Returns the operands' dtype, by which metrics and estimates distinguish
  // operations.
  virtual DataType dtype() const = 0;
  // Returns twice the number of multiply-adds; saturates.
  virtual int64_t flops() const = 0;
  // Returns the multiply-adds, weighted by their cost on a modest machine.
  // Never measured, because the slicing, and so the result bits, depend on it.
  virtual double nominal_macs() const {
    return static_cast<double>(flops()) / 2;
  }

  // Return the tensors by position in RunBuffers. The descriptors are valid as
  // long as the operation.
  virtual TensorUses OperandUses() const = 0;
  virtual TensorUses ResultUses() const = 0;
  // Returns the positions of operands that usually repeat with the same bytes,
  // so that caching their prepared form pays; none by default.
  virtual std::vector<size_t> weight_positions() const { return {}; }

  // Returns the number of items into which the operation can be cut: 1 if it
  // can't be cut, 0 if the batch is empty.
  virtual int64_t batch() const { return 1; }
  // Returns the same operation on `items` items. Results without a batch axis
  // become addends: f32, row-major, unscaled. Null: the operation can't be cut.
  // Requires: 0 <= items <= batch().
  virtual std::unique_ptr<const Operation> WithBatch(int64_t /*items*/) const {
    return nullptr;
  }

 protected:
  Operation() = default;
  // Protected to prevent slicing.
  Operation(const Operation&) = default;
  Operation(Operation&&) = default;
  Operation& operator=(const Operation&) = default;
  Operation& operator=(Operation&&) = default;
};

}  // namespace convgrad
