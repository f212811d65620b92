#include "server/rpc/unary_call.h"

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "backends/core/status.h"

namespace convgrad {

UnaryCall::UnaryCall(const CallServices& services,
                     grpc::GenericCallbackServerContext* context,
                     absl::string_view method, Role role)
    : Call(services, context, method, role),
      read_start_(arrival()),
      read_end_(arrival()) {}

void UnaryCall::OnMemory(const absl::Status& status) {
  read_start_ = read_end_ = absl::Now();
  if (!status.ok()) return End(status);
  HandOver();
  StartRead(&request_);
}

void UnaryCall::OnReadDone(bool ok) {
  HandOver();
  read_end_ = absl::Now();
  if (ok) return OnRequest();
  if (FailedToRead()) return End(WhyGone());
  // Either the client sent no message, or gRPC itself refused one, cancelled
  // the call and told the client. Only a call that isn't cancelled can still
  // send.
  HandOver();
  StartSendInitialMetadata();
}

void UnaryCall::OnSendInitialMetadataDone(bool ok) {
  HandOver();
  if (ok) {
    return End(InvalidField(Reason::kMalformed, "request", "no message",
                            "one message"));
  }
  End(MakeError(
      absl::StatusCode::kResourceExhausted,
      {Reason::kLimitExceeded, "request", "a message beyond gRPC's limit",
       absl::StrCat("at most ", services().max_message_bytes)}));
}

}  // namespace convgrad
