// convgrad.v1.ConvGradAdmin.
#pragma once

#include "convgrad/v1/service.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "server/rpc/call_services.h"

namespace convgrad {

// Thread-safe.
class AdminService final : public v1::ConvGradAdmin::WithCallbackMethod_Warmup<
                               v1::ConvGradAdmin::Service> {
 public:
  // `services` outlives it.
  explicit AdminService(const CallServices& services) : services_(services) {}

  grpc::ServerUnaryReactor* Warmup(grpc::CallbackServerContext* context,
                                   const v1::WarmupRequest* request,
                                   v1::WarmupResponse* response) override;

 private:
  const CallServices& services_;
};

}  // namespace convgrad
