// `KeptReferencesOf` finds the kept tensors of a request, and `CompleteKept`
// completes them.
//
// Thread-safe: free functions without state.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "backends/core/convolution/conv_operation.h"
#include "convgrad/v1/operation.pb.h"
#include "proto/codec/tensor_source.h"

namespace convgrad {

// The name under which a session keeps a result. Value type.
struct KeptResult {
  std::string name;
  bool adds = false;  // Adds to the kept tensor of that name.

  friend bool operator==(const KeptResult&, const KeptResult&) = default;
};

// A reference to a kept tensor, whose descriptor completes the request. Value
// type.
struct KeptReference {
  // The operand, or the index of the result to add to the tensor.
  std::optional<Operand> operand;
  int result = -1;
  KeptName name;
  std::string path;  // of the operand or result, for errors
};

// Returns the kept tensors that `operation` refers to, operands first. A result
// may be added to a tensor that doesn't exist yet.
std::vector<KeptReference> KeptReferencesOf(const v1::ConvOperation& operation);

// Completes the operand or result of `*operation` that `reference` describes.
// Takes fields that the request leaves unset from `kept`, the kept tensor's
// descriptor. Fields that it sets must agree.
// Errors: kInvalidArgument, reasons SHAPE_MISMATCH, DTYPE_MISMATCH and
// LAYOUT_MISMATCH.
absl::Status CompleteKept(const KeptReference& reference,
                          const TensorDescriptor& kept,
                          v1::ConvOperation* operation);

}  // namespace convgrad
