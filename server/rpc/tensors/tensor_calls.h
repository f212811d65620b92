// Calls that put tensors into a session, get them back, list and drop them.
#pragma once

#include "convgrad/v1/session.pb.h"
#include "server/rpc/calls/message_call.h"

namespace convgrad {

class PutTensorsCall final : public MessageCall {
 public:
  using MessageCall::MessageCall;

 private:
  void OnMessage(grpc::ByteBuffer* message) override;
  absl::Status Put(grpc::ByteBuffer* message);
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
