// These classes and functions handle the RPCs that put tensors into a session,
// get them, list them and drop them.
#pragma once

#include <optional>

#include "convgrad/v1/session.pb.h"
#include "server/rpc/calls/message_call.h"
#include "server/rpc/tensors/tensor_get.h"
#include "server/rpc/tensors/tensor_put.h"

namespace convgrad {

// `PutTensorsCall` handles PutTensors.
class PutTensorsCall : public MessageCall {
 public:
  using MessageCall::MessageCall;

 private:
  absl::Status CheckTurn() override;
  absl::Status OnMessage() override;
  void Settle(const absl::Status& status) override;

  std::optional<TensorPut> put_;
};

// `GetTensorsCall` handles GetTensors.
class GetTensorsCall final : public MessageCall {
 public:
  using MessageCall::MessageCall;

 private:
  absl::Status OnMessage() override;
  void Settle(const absl::Status& status) override;
  // Makes the response, for which it converts tensors.
  absl::Status Convert();

  std::optional<TensorGet> get_;
  grpc::ByteBuffer response_;
};

// Handles DropTensors.
absl::Status HandleDropTensors(PlainCall* call);

// Handles ListTensors.
absl::Status HandleListTensors(PlainCall* call);

}  // namespace convgrad
