// The compute methods of convgrad.v1.ConvGrad, answered one level below
// protobuf's stubs: a call is seen before its message is read, and its payloads
// are read and written without protobuf's copies.
#pragma once

#include "grpcpp/generic/async_generic_service.h"
#include "server/rpc/calls/call_services.h"

namespace convgrad {

// Thread-safe.
class ConvGradService final : public grpc::CallbackGenericService {
 public:
  // `services` outlives it.
  explicit ConvGradService(const CallServices& services)
      : services_(services) {}

  // Returns the call, started; methods that aren't ours are UNIMPLEMENTED.
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

 private:
  const CallServices& services_;
};

}  // namespace convgrad
