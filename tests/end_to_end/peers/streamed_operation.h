// `OperationData` is an operation on random data that a client runs whole and
// in slices.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "backends/reference/exact_convolution.h"
#include "client/cpp/client.h"

namespace convgrad {

enum class Values { kIntegers, kReals };

// An operation and the bytes that it reads. Movable, but not while it runs.
class OperationData {
 public:
  OperationData(ConvOperation operation, Values values);

  const ConvOperation& operation() const { return operation_; }
  // The operands' logical values.
  const ExactOperands& values() const { return values_; }
  // Returns a call on this data.
  OperationCall Call() const;

 private:
  ConvOperation operation_;
  ExactOperands values_;
  std::array<std::vector<std::byte>, kOperandCount> bytes_;
};

// Returns the bytes of the result `which`.
std::string BytesOf(const OperationReply& reply, Result which);

}  // namespace convgrad
