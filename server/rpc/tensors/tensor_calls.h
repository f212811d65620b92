// Calls that put tensors into a session, get them back, list and drop them.
#pragma once

#include <optional>

#include "convgrad/v1/session.pb.h"
#include "server/rpc/calls/message_call.h"
#include "server/rpc/tensors/tensor_put.h"

namespace convgrad {

class PutTensorsCall : public MessageCall {
 public:
  using MessageCall::MessageCall;

 private:
  void OnMessage(grpc::ByteBuffer* message) override;
  void Settle(const absl::Status& status) override;
  absl::Status Begin(grpc::ByteBuffer* message);
  // Answers. Requires: the bytes are there.
  void Commit();

  std::optional<TensorPut> put_;
};

class GetTensorsCall final : public MessageCall {
 public:
  using MessageCall::MessageCall;

 private:
  void OnMessage(grpc::ByteBuffer* message) override;
  absl::StatusOr<grpc::ByteBuffer> Get(grpc::ByteBuffer* message);
};

class DropTensorsCall final : public MessageCall {
 public:
  using MessageCall::MessageCall;

 private:
  void OnMessage(grpc::ByteBuffer* message) override;
  absl::Status Drop(grpc::ByteBuffer* message);
};

class ListTensorsCall final : public MessageCall {
 public:
  using MessageCall::MessageCall;

 private:
  void OnMessage(grpc::ByteBuffer* message) override;
  absl::StatusOr<v1::ListTensorsResponse> List(grpc::ByteBuffer* message);
};

}  // namespace convgrad
