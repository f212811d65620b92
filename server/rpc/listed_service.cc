#include "server/rpc/listed_service.h"

#include "absl/time/clock.h"
#include "proto/codec.h"
#include "server/rpc/status_conversion.h"

namespace convgrad {

grpc::ServerUnaryReactor* ListedService::GetCapabilities(
    grpc::CallbackServerContext* context,
    const v1::GetCapabilitiesRequest* request,
    v1::GetCapabilitiesResponse* response) {
  constexpr absl::string_view kMethod = "GetCapabilities";
  const absl::Time arrival = absl::Now();
  services_.observer->OnStarted(kMethod);
  absl::Status status = services_.lifecycle->CheckServing();
  if (status.ok()) status = CheckCriticalFields(*request);
  if (status.ok()) *response = services_.capabilities;
  services_.observer->OnHandled(kMethod, status.code(), absl::Now() - arrival);
  for (const auto& [key, value] : TrailersOf(status)) {
    context->AddTrailingMetadata(key, value);
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

}  // namespace convgrad
