// Tensors of a request that a session keeps on the server.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "backends/core/convolution/conv_operation.h"
#include "convgrad/v1/operation.pb.h"
#include "proto/codec/tensor_source.h"

namespace convgrad {

// Where a kept result goes. Value type.
struct KeptResult {
  std::string name;
  bool adds = false;  // to what is there

  friend bool operator==(const KeptResult&, const KeptResult&) = default;
};

// A kept tensor whose descriptor completes a request. Value type.
struct KeptReference {
  // The operand, or the index of the result that is added to it.
  std::optional<Operand> operand;
  int result = -1;
  KeptName name;
  std::string path;  // of the operand or result, for errors
};

// Returns the kept tensors that `operation` refers to, operands first. A result
// may be added to one that isn't there yet.
std::vector<KeptReference> KeptReferencesOf(const v1::ConvOperation& operation);

// Completes `*operation`, which `reference` is of: what it leaves unset of that
// operand or result is as `kept`, the tensor that is there, has it. What it
// does say must agree.
// Errors: kInvalidArgument, reasons SHAPE_MISMATCH, DTYPE_MISMATCH and
// LAYOUT_MISMATCH.
absl::Status CompleteKept(const KeptReference& reference,
                          const TensorDescriptor& kept,
                          v1::ConvOperation* operation);

}  // namespace convgrad
