#include "tests/cases/call_path.h"

#include <cstring>
#include <utility>
#include <vector>

#include "backends/core/status.h"
#include "client/cpp/calls/rpc_status.h"
#include "client/cpp/operation_message.h"
#include "client/cpp/placed_call.h"
#include "convgrad/v1/service.grpc.pb.h"
#include "grpcpp/grpcpp.h"

namespace convgrad::testing_support {
namespace {

class MessageClient : public PathClient {
 public:
  explicit MessageClient(std::unique_ptr<Client> client)
      : client_(std::move(client)) {}
  absl::StatusOr<OperationReply> Run(const OperationCall& call) override {
    return client_->Run(call);
  }

 protected:
  const std::unique_ptr<Client> client_;
};

class StreamClient final : public MessageClient {
 public:
  using MessageClient::MessageClient;
  absl::StatusOr<OperationReply> Run(const OperationCall& call) override {
    return client_->RunStreamed(call, 1);
  }
};

class RegionClient final : public MessageClient {
 public:
  RegionClient(std::unique_ptr<Client> client, std::string regions)
      : MessageClient(std::move(client)), regions_(std::move(regions)) {}

  absl::StatusOr<OperationReply> Run(const OperationCall& call) override {
    ASSIGN_OR_RETURN(const PlacedCall placed, PlaceInRegion(call, regions_));
    ASSIGN_OR_RETURN(OperationReply reply, client_->Run(placed.call));
    for (OperationResult& result : reply.results) {
      ASSIGN_OR_RETURN(result.data,
                       AlignedBuffer::Allocate(std::ssize(result.bytes)));
      if (!result.bytes.empty()) {
        std::memcpy(result.data.data(), result.bytes.data(),
                    result.bytes.size());
      }
      result.bytes = result.data.bytes();
    }
    return reply;
  }

 private:
  const std::string regions_;
};

class StockClient final : public PathClient {
 public:
  explicit StockClient(const std::string& server) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    stub_ = v1::ConvGrad::NewStub(grpc::CreateCustomChannel(
        server, grpc::InsecureChannelCredentials(), arguments));
  }

  absl::StatusOr<OperationReply> Run(const OperationCall& call) override {
    return call.operation.direction == Direction::kForward
               ? RunWith<v1::ConvForwardRequest, v1::ConvForwardResponse>(
                     call, &v1::ConvGrad::Stub::ConvForward)
               : RunWith<v1::ConvBackwardRequest, v1::ConvBackwardResponse>(
                     call, &v1::ConvGrad::Stub::ConvBackward);
  }

 private:
  template <typename Request, typename Response>
  absl::StatusOr<OperationReply> RunWith(
      const OperationCall& call,
      grpc::Status (v1::ConvGrad::Stub::*method)(grpc::ClientContext*,
                                                 const Request&, Response*)) {
    RegionPlaces nowhere;
    nowhere.results.resize(call.operation.results.size());
    std::vector<grpc::Slice> payloads;
    for (const auto& operand : call.operands) {
      const auto i = static_cast<size_t>(&operand - call.operands.data());
      if (!call.operation.operands[i]) continue;
      payloads.emplace_back(operand.data(), operand.size());
    }
    ASSIGN_OR_RETURN(grpc::ByteBuffer bytes,
                     EncodeRequest(call, nowhere, std::move(payloads)));
    Request request;
    grpc::GenericDeserialize<grpc::ProtoBufferReader, Request>(&bytes,
                                                               &request);
    grpc::ClientContext context;
    Response response;
    const grpc::Status status =
        (stub_.get()->*method)(&context, request, &response);
    RETURN_IF_ERROR(FromRpc(status, context));
    const std::string text = response.SerializeAsString();
    const grpc::Slice slice(text);
    grpc::ByteBuffer message(&slice, 1);
    return DecodeReply(call, nowhere, &message);
  }

  std::unique_ptr<v1::ConvGrad::Stub> stub_;
};

}  // namespace

std::optional<CallPath> ParseCallPath(absl::string_view name) {
  if (name == "message") return CallPath::kMessage;
  if (name == "stock") return CallPath::kStock;
  if (name == "stream") return CallPath::kStream;
  if (name == "region") return CallPath::kRegion;
  return std::nullopt;
}

absl::StatusOr<std::unique_ptr<PathClient>> PathClient::Connect(
    const std::string& server, const std::string& regions, CallPath path) {
  if (path == CallPath::kStock) return std::make_unique<StockClient>(server);
  ASSIGN_OR_RETURN(std::unique_ptr<Client> client, Client::Connect({server}));
  switch (path) {
    case CallPath::kStream:
      return std::make_unique<StreamClient>(std::move(client));
    case CallPath::kRegion:
      return std::make_unique<RegionClient>(std::move(client), regions);
    default:
      return std::make_unique<MessageClient>(std::move(client));
  }
}

}  // namespace convgrad::testing_support
