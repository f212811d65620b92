// Kept tensors as operands and results of a convolution, whatever call asks
// for it.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/codec/codec.h"
#include "proto/codec/kept_tensors.h"
#include "server/memory/tensor_place.h"
#include "server/rpc/calls/session_part.h"

namespace convgrad {

// Owned by one call.
class KeptPlaces final : public KeptLookup {
 public:
  // `session` outlives this; it may be that of a call of no session, which has
  // no kept tensors.
  explicit KeptPlaces(SessionPart* session) : session_(*session) {}

  // See CompleteKept.
  absl::StatusOr<TensorDescriptor> FindOperand(
      Operand which, const v1::Tensor::Kept& kept,
      const std::string& path) override;
  absl::StatusOr<std::optional<TensorDescriptor>> FindSum(
      int index, const v1::ResultRequest::KeptDestination& kept,
      const std::string& path) override;

  // Sets the places of kept operands, and takes memory for kept results, as far
  // as it can out of `*paid`. Requires: CompleteKept has asked.
  // Errors: kInvalidArgument if the call can't keep results; kNotFound;
  // kResourceExhausted.
  absl::Status Place(const DecodedOperation& decoded, TensorPlaces* places,
                     Reservation* paid);

 private:
  absl::Status PlaceResult(const TensorDescriptor& descriptor,
                           const KeptResult& result, const std::string& path,
                           TensorPlace* place, Reservation* paid);

  SessionPart& session_;
  std::array<std::optional<KeptTensor>, kOperandCount> operands_;
};

}  // namespace convgrad
