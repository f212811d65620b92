// Tensors that are got, from messages. Internal to the client.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/sessions/session.h"
#include "convgrad/v1/session.pb.h"
#include "grpcpp/support/byte_buffer.h"

namespace convgrad {

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
