#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/connection.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "tests/bench/floors.h"
#include "tests/bench/subject.h"

namespace convgrad::bench {
namespace {

// Returns a message of one slice over memory that exists longer.
grpc::ByteBuffer Borrowed(const std::string& bytes) {
  const grpc::Slice slice(bytes.data(), bytes.size(),
                          grpc::Slice::STATIC_SLICE);
  return grpc::ByteBuffer(&slice, 1);
}

class EchoCall final : public grpc::ServerGenericBidiReactor {
 public:
  explicit EchoCall(const std::string& reply) : reply_(Borrowed(reply)) {
    StartRead(&request_);
  }
  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);
    StartWriteAndFinish(&reply_, grpc::WriteOptions(), grpc::Status::OK);
  }
  void OnDone() override { delete this; }

 private:
  grpc::ByteBuffer request_, reply_;
};

class EchoService final : public grpc::CallbackGenericService {
 public:
  explicit EchoService(int64_t reply_bytes) : reply_(reply_bytes, 'r') {}

 private:
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext*) override {
    return new EchoCall(reply_);
  }
  const std::string reply_;
};

class GrpcFloor final : public Floor {
 public:
  explicit GrpcFloor(CallBytes bytes)
      : request_(bytes.request, 'q'), service_(bytes.reply) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.RegisterCallbackGenericService(&service_);
    builder.SetMaxReceiveMessageSize(-1);
    server_ = builder.BuildAndStart();
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    connection_ = std::make_unique<Client::Connection>(
        grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", port),
                                  grpc::InsecureChannelCredentials(),
                                  arguments),
        std::string());
  }

  absl::Duration Run() override {
    const absl::Time start = absl::Now();
    grpc::ClientContext context;
    connection_->FillContext(OperationCall(), &context);
    const auto reply =
        connection_->Send("/floor/Echo", Borrowed(request_), &context);
    if (!reply.ok()) Fail(reply.status());
    return absl::Now() - start;
  }

 private:
  const std::string request_;
  EchoService service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Client::Connection> connection_;
};

}  // namespace

std::unique_ptr<Floor> MakeGrpcFloor(CallBytes bytes) {
  return std::make_unique<GrpcFloor>(bytes);
}

}  // namespace convgrad::bench
