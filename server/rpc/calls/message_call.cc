#include "server/rpc/calls/message_call.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/steady_now.h"
#include "proto/call_metadata.h"
#include "proto/codec/codec.h"
#include "server/memory/admission.h"

namespace convgrad {
namespace {

// A change may be admitted before its turn if it takes at most 1/8 of the
// calls' memory. A waiting change shouldn't take much memory from the running
// one.
constexpr int64_t kEarlyDivisor = 8;

// Calls without tensors of up to this size take no memory of the budget, so
// that sessions can be closed while it is used up.
constexpr int64_t kUnpaidBytes = int64_t{32} << 10;

}  // namespace

void MessageCall::Start() {
  int64_t declared;
  if (absl::SimpleAtoi(Metadata(kRequestBytesKey), &declared) &&
      declared >= 0) {
    declared_bytes_ = declared;
  }
  const absl::Status size = CheckMessageBytes("request", declared_bytes_);
  if (size.ok()) {
    // A BUSY change ends here without a decision of the session, because BUSY
    // is temporary and the client sends the change again.
    absl::Status busy = CheckArrival();
    if (!busy.ok()) return End(std::move(busy));
  } else {
    RefuseInTurn(size);
  }
  AwaitTurn(/*may_be_early=*/size.ok() &&
            AdmissionBytes(ExpectedBytes()) <=
                services().memory->budget.capacity_bytes() / kEarlyDivisor);
}

void MessageCall::Do(arrival::Next next) {
  switch (next) {
    case arrival::Next::kAskMemory:
      if (is_small() && max_bytes() <= kUnpaidBytes) {
        OnMemory(absl::OkStatus());
      } else {
        AwaitMemory(AdmissionBytes(ExpectedBytes()));
      }
      break;
    case arrival::Next::kRead:
      read_start_ = SteadyNow();
      ExpectMessage(ExpectedBytes());
      AwaitClient(
          read_start_ + services().client_watch->AllowedFor(ExpectedBytes()),
          [this] { StartRead(&request_); });
      arrival_.On(arrival::Event::kReading);
      break;
    case arrival::Next::kProbe:
      // gRPC 1.51 drops the message of a client that leaves after its
      // half-close. Only a call whose client is still there can send metadata:
      // if that succeeds, the client sent no message.
      return AwaitClient(SteadyNow() + services().client_watch->AllowedFor(0),
                         [this] { StartSendInitialMetadata(); });
    case arrival::Next::kProceed:
      if (!decision_.runs()) return EndAs(decision_);
      if (!message_status_.ok()) return End(message_status_);
      session().AdmitNextEarly();
      if (absl::Status status = OnMessage(); !status.ok()) {
        End(std::move(status));
      }
      return;
    case arrival::Next::kCancelWait:
      CancelWait();
      return;
    case arrival::Next::kWithdraw:
      // If Withdraw fails, OnTurn is about to be called, and ends the call.
      if (session().Withdraw()) End(message_status_);
      return;
    case arrival::Next::kNothing:
      break;
  }
  // The session may have refused the call meanwhile.
  next = arrival_.On(arrival::Event::kGiveUp,
                     [this] { return StopAwaitingClient(); });
  if (next != arrival::Next::kNothing) return Do(next);
  // A change takes memory for results and scratch only if there is room, so it
  // waits for no more memory.
  if (arrival_.has_all_but_message()) session().AdmitNextEarly();
}

void MessageCall::OnEarlyAdmission() {
  Do(arrival_.On(arrival::Event::kEarlyAdmission));
}

void MessageCall::OnTurn(const ChangeOrder::Decision& decision) {
  const CallHold hold(this);
  absl::Status status = decision.runs() ? CheckTurn() : absl::OkStatus();
  decision_ =
      status.ok() ? decision : ChangeOrder::Decision::Refuse(std::move(status));
  Do(arrival_.On(decision_.runs() ? arrival::Event::kTurn
                                  : arrival::Event::kRefusal));
}

void MessageCall::EndMessage(const absl::Status& status) {
  const CallHold hold(this);
  message_status_ = status;
  const bool is_gone =
      absl::IsCancelled(status) || absl::IsDeadlineExceeded(status);
  Do(arrival_.On(status.ok() ? arrival::Event::kCame
                 : is_gone   ? arrival::Event::kGone
                             : arrival::Event::kFailed));
}

void MessageCall::Settle(const absl::Status& status) {
  if (!status.ok()) sample_.bytes_sent = 0;
}

int64_t MessageCall::ExpectedBytes() const {
  return declared_bytes_ >= 0 ? declared_bytes_ : max_bytes();
}

void MessageCall::OnMemory(const absl::Status& status) {
  if (!status.ok()) return EndMessage(status);
  const CallHold hold(this);
  Do(arrival_.On(arrival::Event::kMemory));
}

void MessageCall::OnSlowClient() {
  HandOver();
  const absl::Time now = SteadyNow();
  if (deadline() <= now) return EndMessage(WhyGone());
  EndMessage(DeadlineExceeded(
      "request",
      absl::StrCat("no whole message of up to ", ExpectedBytes(),
                   " bytes after ", absl::FormatDuration(now - read_start_)),
      "one as fast as the server's --min_client_rate, after "
      "--unary_idle_timeout at most"));
}

void MessageCall::OnReadDone(bool ok) {
  HandOver();
  if (!StopAwaitingClient()) return;
  if (!ok && FailedToRead()) return EndMessage(WhyGone());
  if (!ok) {
    const CallHold hold(this);
    return Do(arrival_.On(arrival::Event::kReadFailed));
  }
  sample_.times.receive.Add(read_start_, SteadyNow());
  const auto size = static_cast<int64_t>(request_.Length());
  EndMessage(is_small() ? CheckMessageBytes("request", size)
                        : absl::OkStatus());
}

void MessageCall::OnSendInitialMetadataDone(bool ok) {
  HandOver();
  if (!StopAwaitingClient()) return;
  EndMessage(ok ? Malformed("request", "no message", "one message")
                : WhyGone());
}

absl::StatusOr<std::vector<PayloadView>> MessageCall::Split(
    google::protobuf::Message* head) {
  ASSIGN_OR_RETURN(std::vector<PayloadView> payloads,
                   SplitMessage(&request_, head, AdmitsHead()));
  int64_t received = 0;
  for (const PayloadView& payload : payloads) received += payload.size();
  sample_.bytes_received = received;
  if (declared_bytes_ >= 0 && received > declared_bytes_) {
    return InvalidField(Reason::kByteCountMismatch, "payloads",
                        absl::StrCat(received, " bytes"),
                        absl::StrCat("at most ", declared_bytes_,
                                     ", declared in ", kRequestBytesKey));
  }
  RETURN_IF_ERROR(CheckMessageBytes("request", received));
  RETURN_IF_ERROR(CheckCriticalFields(*head));
  return payloads;
}

absl::Status MessageCall::AnswerWith(const google::protobuf::Message& head) {
  Answer(JoinMessage(head, {}));
  return absl::OkStatus();
}

void MessageCall::Finish(absl::Status status,
                         const google::protobuf::Message& head) {
  if (!status.ok()) return End(std::move(status));
  Answer(JoinMessage(head, {}));
}

absl::Status MessageCall::CheckMessageBytes(absl::string_view what,
                                            int64_t bytes) const {
  if (bytes <= max_bytes()) return absl::OkStatus();
  return LimitExceeded(
      what, absl::StrCat(bytes, " bytes"),
      absl::StrCat(
          "at most ", max_bytes(),
          is_small() ? " in this call" : ", the server's --max_message_bytes"));
}

}  // namespace convgrad
