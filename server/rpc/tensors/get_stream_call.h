// `GetStreamCall` handles GetTensorsStream: it sends tensors in frames.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "server/rpc/calls/message_call.h"
#include "server/rpc/tensors/tensor_get.h"

namespace convgrad {

// `GetStreamCall` sends one message after the other, with nothing else in
// flight. It reserves all memory before the first message.
class GetStreamCall final : public MessageCall {
 public:
  using MessageCall::MessageCall;

 private:
  absl::Status OnMessage() override;
  void OnWriteDone(bool ok) override;
  void Settle(const absl::Status& status) override;

  // Finds the tensors, reserves their memory and returns the header.
  absl::StatusOr<grpc::ByteBuffer> Begin();
  // Sets `bytes_` to those of the next tensor, converted if necessary.
  absl::Status TakeBytes();
  absl::StatusOr<grpc::ByteBuffer> NextFrame();
  // Sends `message`, the one before the frame `next_`. Call it last: the call
  // may be deleted when this returns.
  void Send(absl::StatusOr<grpc::ByteBuffer> message);

  std::optional<TensorGet> get_;
  // The reserved memory of the copies that aren't made yet.
  Reservation paid_;
  // The tensor whose frames are being sent, and the offset of the next frame.
  // After the last frame, the tensor's index is the number of tensors.
  v1::TensorFrame next_;
  std::optional<SharedBytes> bytes_;
  grpc::ByteBuffer outgoing_;
};

}  // namespace convgrad
