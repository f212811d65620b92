#include "server/rpc/plain_call.h"

#include "server/rpc/status_conversion.h"

namespace convgrad {

PlainCall::PlainCall(const CallServices& services,
                     grpc::CallbackServerContext* context,
                     absl::string_view method, Role role)
    : reactor_(context->DefaultReactor()),
      record_(services, context, method),
      admission_(record_.Enter(role)) {}

void PlainCall::End(const absl::Status& status) {
  record_.Close(status, nullptr);
  reactor_->Finish(ToGrpcStatus(status));
}

}  // namespace convgrad
