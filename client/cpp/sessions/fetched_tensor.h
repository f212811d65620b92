// Decodes fetched tensors from messages. Internal to the client.
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
absl::StatusOr<FetchedTensor> DecodeFetched(grpc::ByteBuffer* message);

// Assembles the one tensor of a GetTensorsStream. Owned by one call.
class FetchedFrames {
 public:
  // Discards the frames of an earlier attempt.
  void Begin();
  // Adds the next message. Errors: kInternal; kResourceExhausted.
  absl::Status Add(grpc::ByteBuffer* message);
  // Returns the tensor. Errors: kInternal if bytes are missing.
  absl::StatusOr<FetchedTensor> Take();

 private:
  std::optional<FetchedTensor> fetched_;
  int64_t received_ = 0;
};

}  // namespace convgrad
