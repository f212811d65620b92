// The service that reflection lists: it answers GetCapabilities itself and
// leaves the compute methods to ConvGradService.
#pragma once

#include <atomic>

#include "convgrad/v1/service.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "server/rpc/call_services.h"

namespace convgrad {

// gRPC 1.51 doesn't list a service whose methods are all generic, so the one
// that carries no tensors is an ordinary one. Thread-safe.
class ListedService final
    : public v1::ConvGrad::WithGenericMethod_ConvForward<
          v1::ConvGrad::WithGenericMethod_ConvBackward<
              v1::ConvGrad::WithGenericMethod_ConvForwardStream<
                  v1::ConvGrad::WithGenericMethod_ConvBackwardStream<
                      v1::ConvGrad::WithCallbackMethod_GetCapabilities<
                          v1::ConvGrad::Service>>>>> {
 public:
  // `services` outlives it.
  explicit ListedService(const CallServices& services) : services_(services) {}

  grpc::ServerUnaryReactor* GetCapabilities(
      grpc::CallbackServerContext* context,
      const v1::GetCapabilitiesRequest* request,
      v1::GetCapabilitiesResponse* response) override;

 private:
  const CallServices& services_;
};

}  // namespace convgrad
