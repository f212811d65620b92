#include "server/rpc/plain_call.h"

#include <utility>

#include "absl/time/clock.h"
#include "backends/core/status.h"
#include "server/rpc/call_end.h"
#include "server/rpc/status_conversion.h"

namespace convgrad {
namespace {

absl::StatusOr<Visit> LetIn(const CallServices& services,
                            const grpc::CallbackServerContext& context,
                            Role role) {
  RETURN_IF_ERROR(services.lifecycle->CheckServing());
  return services.gate->Enter(context, role);
}

}  // namespace

PlainCall::PlainCall(const CallServices& services,
                     grpc::CallbackServerContext* context,
                     absl::string_view method, Role role)
    : services_(services),
      context_(context),
      reactor_(context->DefaultReactor()),
      method_(method),
      arrival_(absl::Now()) {
  services_.observer->OnStarted(method_);
  absl::StatusOr<Visit> visit = LetIn(services_, *context, role);
  admission_ = visit.status();
  if (visit.ok()) visit_ = *std::move(visit);
}

void PlainCall::End(const absl::Status& status) {
  TellEnd(
      services_,
      {method_, CallerOf(*context_), arrival_, absl::Now(), status, nullptr},
      visit_.client());
  visit_ = Visit();
  for (const auto& [key, value] : TrailersOf(status)) {
    context_->AddTrailingMetadata(key, value);
  }
  reactor_->Finish(ToGrpcStatus(status));
}

}  // namespace convgrad
