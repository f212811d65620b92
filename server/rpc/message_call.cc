#include "server/rpc/message_call.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "backends/core/status.h"
#include "proto/call_metadata.h"
#include "server/memory/admission.h"

namespace convgrad {

MessageCall::MessageCall(const CallServices& services,
                         grpc::GenericCallbackServerContext* context,
                         absl::string_view method, Role role,
                         absl::string_view operation)
    : Call(services, context, method, role) {
  sample_.operation = std::string(operation);
}

void MessageCall::Start() {
  sample_.priority = std::string(NameOf(priority()));
  int64_t declared;
  if (absl::SimpleAtoi(Metadata(kRequestBytesKey), &declared) &&
      declared >= 0) {
    declared_bytes_ = declared;
  }
  absl::Status status = CheckMessageBytes("request", declared_bytes_);
  if (status.ok()) status = CheckArrival();
  if (!status.ok()) return End(std::move(status));
  AwaitTurn();
}

void MessageCall::OnTurn(const ChangeOrder::Decision& decision) {
  if (!decision.ok()) return End(decision.status());
  if (*decision != nullptr) return Repeat(*decision);
  AwaitMemory(AdmissionBytes(ExpectedBytes()));
}

void MessageCall::Settle(const absl::Status& status) {
  if (!status.ok()) sample_.bytes_sent = 0;
}

int64_t MessageCall::ExpectedBytes() const {
  return declared_bytes_ >= 0 ? declared_bytes_ : services().max_message_bytes;
}

void MessageCall::OnMemory(const absl::Status& status) {
  if (!status.ok()) return End(status);
  read_start_ = absl::Now();
  AwaitClient(ExpectedBytes(), [this] { StartRead(&request_); });
}

void MessageCall::OnSlowClient() {
  HandOver();
  const absl::Time now = absl::Now();
  if (deadline() <= now) return End(WhyGone());
  End(MakeError(
      absl::StatusCode::kDeadlineExceeded,
      {Reason::kDeadline, "request",
       absl::StrCat("no whole message of up to ", ExpectedBytes(),
                    " bytes after ", absl::FormatDuration(now - read_start_)),
       "one as fast as the server's --min_client_rate, after "
       "--unary_idle_timeout at most"}));
}

void MessageCall::OnReadDone(bool ok) {
  HandOver();
  if (!StopAwaitingClient()) return;
  if (!ok && FailedToRead()) return End(WhyGone());
  if (!ok) {
    // Either the client sent no message, or it has left since it half-closed,
    // upon which gRPC 1.51 drops the message. Only a call whose client is still
    // there can send.
    return AwaitClient(0, [this] { StartSendInitialMetadata(); });
  }
  sample_.times.receive.Add(read_start_, absl::Now());
  OnMessage(&request_);
}

void MessageCall::OnSendInitialMetadataDone(bool ok) {
  HandOver();
  if (!StopAwaitingClient()) return;
  End(ok ? InvalidField(Reason::kMalformed, "request", "no message",
                        "one message")
         : WhyGone());
}

absl::Status MessageCall::CheckMessageBytes(absl::string_view what,
                                            int64_t bytes) const {
  const int64_t limit = services().max_message_bytes;
  if (bytes <= limit) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kResourceExhausted,
      {Reason::kLimitExceeded, std::string(what), absl::StrCat(bytes, " bytes"),
       absl::StrCat("at most ", limit, ", the server's --max_message_bytes")});
}

absl::Status MessageCall::CheckReceived(int64_t bytes) {
  sample_.bytes_received = bytes;
  if (declared_bytes_ >= 0 && bytes > declared_bytes_) {
    return InvalidField(Reason::kByteCountMismatch, "payloads",
                        absl::StrCat(bytes, " bytes"),
                        absl::StrCat("at most ", declared_bytes_,
                                     ", declared in ", kRequestBytesKey));
  }
  return CheckMessageBytes("request", bytes);
}

}  // namespace convgrad
