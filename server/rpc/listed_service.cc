#include "server/rpc/listed_service.h"

#include "proto/codec.h"
#include "server/rpc/plain_call.h"

namespace convgrad {

grpc::ServerUnaryReactor* ListedService::GetCapabilities(
    grpc::CallbackServerContext* context,
    const v1::GetCapabilitiesRequest* request,
    v1::GetCapabilitiesResponse* response) {
  PlainCall call(services_, context, "GetCapabilities", Role::kInfer);
  absl::Status status = call.admission();
  if (status.ok()) status = CheckCriticalFields(*request);
  if (status.ok()) *response = services_.capabilities();
  call.End(status);
  return call.reactor();
}

}  // namespace convgrad
