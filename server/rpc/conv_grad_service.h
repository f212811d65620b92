// `ConvGradService` makes a call object for each RPC. It works one level below
// protobuf's stubs, so that the server sees a call before it reads its message,
// and copies no payload twice.
#pragma once

#include "grpcpp/generic/async_generic_service.h"
#include "server/rpc/calls/call_services.h"

namespace convgrad {

// `ConvGradService` is thread-safe.
class ConvGradService final : public grpc::CallbackGenericService {
 public:
  // `services` outlives it.
  explicit ConvGradService(const CallServices& services)
      : services_(services) {}

  // Returns the call, started. A call of an unknown method ends with
  // UNIMPLEMENTED.
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

 private:
  const CallServices& services_;
};

}  // namespace convgrad
