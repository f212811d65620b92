#include "server/rpc/listed_services.h"

#include <string>

#include "convgrad/v1/service.pb.h"
#include "google/protobuf/descriptor.h"
#include "grpcpp/impl/codegen/rpc_service_method.h"
#include "grpcpp/impl/codegen/server_callback_handlers.h"
#include "grpcpp/impl/service_type.h"

namespace convgrad {
namespace {

using Refusing = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

// Ends its call without a read.
class Refusal final : public Refusing {
 public:
  Refusal() {
    Finish(grpc::Status(grpc::StatusCode::UNIMPLEMENTED,
                        "method: found a name that only lists its service, "
                        "expected a method of convgrad.v1"));
  }
  void OnDone() override { delete this; }
};

// gRPC 1.51 lists a service only if it has a method that isn't generic. The
// method of this service refuses every call. It is a stream, because gRPC reads
// no message of a stream by itself.
class ListedService final : public grpc::Service {
 public:
  explicit ListedService(const std::string& name)
      : path_("/" + name + "/Listed") {
    AddMethod(new grpc::internal::RpcServiceMethod(
        path_.c_str(), grpc::internal::RpcMethod::BIDI_STREAMING, nullptr));
    MarkMethodCallback(
        0, new grpc::internal::CallbackBidiHandler<grpc::ByteBuffer,
                                                   grpc::ByteBuffer>(
               [](grpc::CallbackServerContext*) -> Refusing* {
                 return new Refusal();
               }));
  }

 private:
  const std::string path_;
};

}  // namespace

std::vector<std::unique_ptr<grpc::Service>> MakeListedServices() {
  const google::protobuf::FileDescriptor* file =
      google::protobuf::DescriptorPool::generated_pool()->FindFileByName(
          "convgrad/v1/service.proto");
  std::vector<std::unique_ptr<grpc::Service>> services;
  for (int i = 0; i < file->service_count(); ++i) {
    services.push_back(
        std::make_unique<ListedService>(file->service(i)->full_name()));
  }
  return services;
}

}  // namespace convgrad
