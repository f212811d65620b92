// Calls that put tensors into a session, get them back, list and drop them.
#pragma once

#include <vector>

#include "proto/payload_message.h"
#include "proto/session_codec.h"
#include "server/rpc/message_call.h"

namespace convgrad {

class PutTensorsCall final : public MessageCall {
 public:
  PutTensorsCall(const CallServices& services,
                 grpc::GenericCallbackServerContext* context);

 private:
  void OnMessage(grpc::ByteBuffer* message) override;
  absl::Status Put(grpc::ByteBuffer* message);
  absl::StatusOr<KeptTensor> Keep(const DecodedPut& put,
                                  std::vector<PayloadView>* payloads,
                                  const std::string& path);
  absl::StatusOr<KeptTensor> KeepByDigest(const DecodedPut& put,
                                          const std::string& path);
};

class GetTensorsCall final : public MessageCall {
 public:
  GetTensorsCall(const CallServices& services,
                 grpc::GenericCallbackServerContext* context);

 private:
  void OnMessage(grpc::ByteBuffer* message) override;
  absl::StatusOr<grpc::ByteBuffer> Get(grpc::ByteBuffer* message);
  // Returns the bytes of `kept` as `wanted` would have them.
  absl::StatusOr<grpc::Slice> BytesOf(const KeptTensor& kept,
                                      const WantedTensor& wanted);
};

class DropTensorsCall final : public MessageCall {
 public:
  DropTensorsCall(const CallServices& services,
                  grpc::GenericCallbackServerContext* context);

 private:
  void OnMessage(grpc::ByteBuffer* message) override;
  absl::Status Drop(grpc::ByteBuffer* message);
};

class ListTensorsCall final : public MessageCall {
 public:
  ListTensorsCall(const CallServices& services,
                  grpc::GenericCallbackServerContext* context);

 private:
  void OnMessage(grpc::ByteBuffer* message) override;
};

}  // namespace convgrad
