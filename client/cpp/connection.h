// A client's channel and the stubs on it. Internal to the client.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/client.h"
#include "convgrad/v1/service.grpc.pb.h"
#include "grpcpp/channel.h"
#include "grpcpp/generic/generic_stub.h"

namespace convgrad {

// Thread-safe.
struct Client::Connection {
  Connection(const std::shared_ptr<grpc::Channel>& channel, std::string bearer)
      : raw_stub(channel),
        stub(v1::ConvGrad::NewStub(channel)),
        token(std::move(bearer)) {}

  // Sets what every call has.
  void Prepare(absl::Time deadline, grpc::ClientContext* context) const;
  // The same of an operation.
  void Prepare(const OperationCall& call, grpc::ClientContext* context) const;

  // Sends `request` of `call`, waits, and returns the reply's message.
  absl::StatusOr<grpc::ByteBuffer> Send(const OperationCall& call,
                                        const std::string& method,
                                        const grpc::ByteBuffer& request);

  grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer> raw_stub;
  std::unique_ptr<v1::ConvGrad::Stub> stub;
  const std::string token;
};

}  // namespace convgrad
