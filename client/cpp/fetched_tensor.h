// Tensors that are put and got, as messages. Internal to the client.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/cpp/connection.h"
#include "client/cpp/loan.h"
#include "client/cpp/session.h"
#include "convgrad/v1/session.pb.h"

namespace convgrad {

// Returns the bytes of all tensors.
// Errors: kInvalidArgument for one that has others than its descriptor says.
absl::StatusOr<int64_t> BytesToPut(absl::Span<const TensorToPut> tensors);

// Returns a PutTensorsRequest, whose payloads `loan` lends.
absl::StatusOr<grpc::ByteBuffer> PutMessage(
    absl::Span<const TensorToPut> tensors, const Loan& loan);
// Returns the messages of a PutTensorsStream, likewise.
Client::Connection::Messages PutMessages(absl::Span<const TensorToPut> tensors,
                                         const Loan& loan);

// Returns the one tensor of a GetTensorsResponse. Errors: kInternal.
absl::StatusOr<FetchedTensor> DecodeFetched(const v1::NamedGet& wanted,
                                            grpc::ByteBuffer* message);
// Returns whether the server says that its messages are too small.
bool IsTooLarge(const absl::Status& status);

// Gathers the one tensor of a GetTensorsStream. Owned by one call.
class FetchedFrames {
 public:
  explicit FetchedFrames(const v1::NamedGet& wanted) : wanted_(wanted) {}

  // Forgets what another attempt has brought.
  void Begin();
  // Takes the next message. Errors: kInternal; kResourceExhausted.
  absl::Status Add(grpc::ByteBuffer* message);
  // Returns the tensor. Errors: kInternal if there is less of it.
  absl::StatusOr<FetchedTensor> Take();

 private:
  const v1::NamedGet& wanted_;
  std::optional<FetchedTensor> fetched_;
  int64_t received_ = 0;
};

}  // namespace convgrad
