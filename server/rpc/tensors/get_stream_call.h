// GetTensorsStream: tensors that go in frames.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "server/rpc/calls/message_call.h"
#include "server/rpc/tensors/tensor_get.h"

namespace convgrad {

// Sends one message after the other: nothing else is under way meanwhile. All
// memory is taken before the first.
class GetStreamCall final : public MessageCall {
 public:
  using MessageCall::MessageCall;

 private:
  void OnMessage(grpc::ByteBuffer* message) override;
  void OnWriteDone(bool ok) override;
  void Settle(const absl::Status& status) override;

  // Returns the header.
  absl::StatusOr<grpc::ByteBuffer> Begin(grpc::ByteBuffer* message);
  absl::StatusOr<grpc::ByteBuffer> NextFrame();
  // Sends what comes before the frame `next_`. To be called last.
  void Send(absl::StatusOr<grpc::ByteBuffer> message);

  std::optional<TensorGet> get_;
  // Of copies that aren't made yet.
  Reservation paid_;
  // The tensor whose frames are being sent, and where the next one begins;
  // behind the last tensor if there is none.
  v1::TensorFrame next_;
  std::optional<LentBytes> bytes_;
  grpc::ByteBuffer outgoing_;
};

}  // namespace convgrad
