// Tensors of a request that a session keeps on the server.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/core/convolution/conv_operation.h"
#include "convgrad/v1/operation.pb.h"

namespace convgrad {

// Where a kept result goes. Value type.
struct KeptResult {
  std::string name;
  bool adds = false;  // to what is there

  friend bool operator==(const KeptResult&, const KeptResult&) = default;
};

// What a session has. Called once for each tensor.
class KeptLookup {
 public:
  virtual ~KeptLookup() = default;

  // Returns what the kept tensor of an operand is. `path` names it in errors.
  virtual absl::StatusOr<TensorDescriptor> FindOperand(
      Operand which, const v1::Tensor::Kept& kept, const std::string& path) = 0;
  // Returns what the kept tensor is that result `index` will be added to;
  // nullopt if there is none.
  virtual absl::StatusOr<std::optional<TensorDescriptor>> FindSum(
      int index, const v1::ResultRequest::KeptDestination& kept,
      const std::string& path) = 0;
};

// Completes `*operation`: what a request leaves unset of a kept operand, or of
// a result that is added to a kept tensor, is as that tensor has it. What it
// does say must agree.
// Errors: those of `lookup`; kInvalidArgument, reasons SHAPE_MISMATCH,
// DTYPE_MISMATCH and LAYOUT_MISMATCH.
absl::Status CompleteKept(KeptLookup* lookup, v1::ConvOperation* operation);

}  // namespace convgrad
