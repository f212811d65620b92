#include "server/rpc/message_call.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "backends/core/status.h"
#include "proto/call_metadata.h"
#include "proto/codec.h"
#include "server/memory/admission.h"

namespace convgrad {
namespace {

// A change of more than this part of all memory waits for its turn first: what
// waits with its message shouldn't take much from what runs.
constexpr int64_t kPreparedPart = 8;

bool IsTurn(const std::optional<ChangeOrder::Decision>& decision) {
  return decision && decision->ok() && **decision == nullptr;
}

}  // namespace

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
  AwaitTurn(/*prepares=*/AdmissionBytes(ExpectedBytes()) <=
            services().memory->budget.capacity_bytes() / kPreparedPart);
}

void MessageCall::OnPrepare() {
  {
    MutexLock lock(&mutex_);
    if (turn_) return;
    message_ = MessageState::kAsked;
  }
  AskForMemory();
}

void MessageCall::OnTurn(const ChangeOrder::Decision& decision) {
  const CallHold hold(this);
  MessageState message;
  {
    MutexLock lock(&mutex_);
    turn_ = decision;
    message = message_;
    if (message == MessageState::kUnread && IsTurn(turn_)) {
      message_ = MessageState::kAsked;
    }
  }
  if (message == MessageState::kEnded) return Proceed();
  if (message != MessageState::kUnread) {
    GiveUpIfRefused();
    return LetNextPrepare();
  }
  if (!IsTurn(decision)) return Proceed();
  AskForMemory();
}

void MessageCall::AskForMemory() {
  const CallHold hold(this);
  AwaitMemory(AdmissionBytes(ExpectedBytes()));
  GiveUpIfRefused();
}

void MessageCall::GiveUpIfRefused() {
  bool gives_up;
  {
    MutexLock lock(&mutex_);
    if (!turn_ || IsTurn(turn_)) return;
    gives_up = message_ == MessageState::kComing && StopAwaitingClient();
    if (gives_up) message_ = MessageState::kEnded;
  }
  gives_up ? Proceed() : static_cast<void>(CancelWait());
}

void MessageCall::LetNextPrepare() {
  if (!session().is_change()) return;
  {
    MutexLock lock(&mutex_);
    if (!has_memory_ || !IsTurn(turn_)) return;
  }
  session().LetNextPrepare();
}

void MessageCall::EndMessage(const absl::Status& status) {
  const CallHold hold(this);
  bool is_decided;
  {
    MutexLock lock(&mutex_);
    is_decided = turn_.has_value();
    // Without memory it asks again in its turn.
    message_ = has_memory_ || is_decided ? MessageState::kEnded
                                         : MessageState::kUnread;
    message_status_ = status;
  }
  if (is_decided) return Proceed();
  const bool is_gone =
      absl::IsCancelled(status) || absl::IsDeadlineExceeded(status);
  // Otherwise OnTurn is about to come, or is waited for: what fails does so in
  // its turn.
  if (is_gone && session().Withdraw()) End(status);
}

void MessageCall::Proceed() {
  ChangeOrder::Decision decision = nullptr;
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    decision = *turn_;
    status = message_status_;
  }
  if (!decision.ok()) return End(decision.status());
  if (*decision != nullptr) return Repeat(*decision);
  if (!status.ok()) return End(std::move(status));
  LetNextPrepare();
  OnMessage(&request_);
}

void MessageCall::Settle(const absl::Status& status) {
  if (!status.ok()) sample_.bytes_sent = 0;
}

int64_t MessageCall::ExpectedBytes() const {
  return declared_bytes_ >= 0 ? declared_bytes_ : services().max_message_bytes;
}

void MessageCall::OnMemory(const absl::Status& status) {
  if (!status.ok()) return EndMessage(status);
  const CallHold hold(this);
  {
    MutexLock lock(&mutex_);
    has_memory_ = true;
  }
  read_start_ = absl::Now();
  AwaitClient(ExpectedBytes(), [this] { StartRead(&request_); });
  {
    MutexLock lock(&mutex_);
    if (message_ == MessageState::kAsked) message_ = MessageState::kComing;
  }
  GiveUpIfRefused();
  LetNextPrepare();
}

void MessageCall::OnSlowClient() {
  HandOver();
  const absl::Time now = absl::Now();
  if (deadline() <= now) return EndMessage(WhyGone());
  EndMessage(MakeError(
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
  if (!ok && FailedToRead()) return EndMessage(WhyGone());
  if (!ok) {
    const CallHold hold(this);
    {
      // AwaitClient mustn't be given up before it has asked gRPC.
      MutexLock lock(&mutex_);
      message_ = MessageState::kAsked;
    }
    // Either the client sent no message, or it has left since it half-closed,
    // upon which gRPC 1.51 drops the message. Only a call whose client is still
    // there can send.
    return AwaitClient(0, [this] { StartSendInitialMetadata(); });
  }
  sample_.times.receive.Add(read_start_, absl::Now());
  EndMessage(absl::OkStatus());
}

void MessageCall::OnSendInitialMetadataDone(bool ok) {
  HandOver();
  if (!StopAwaitingClient()) return;
  EndMessage(ok ? InvalidField(Reason::kMalformed, "request", "no message",
                               "one message")
                : WhyGone());
}

absl::StatusOr<std::vector<PayloadView>> MessageCall::Split(
    grpc::ByteBuffer* message, google::protobuf::Message* head) {
  ASSIGN_OR_RETURN(std::vector<PayloadView> payloads,
                   SplitMessage(message, head));
  int64_t received = 0;
  for (const PayloadView& payload : payloads) received += payload.size();
  RETURN_IF_ERROR(CheckReceived(received));
  RETURN_IF_ERROR(CheckCriticalFields(*head));
  return payloads;
}

void MessageCall::Finish(absl::Status status,
                         const google::protobuf::Message& head) {
  if (!status.ok()) return End(std::move(status));
  absl::StatusOr<grpc::ByteBuffer> response = JoinMessage(head, {});
  if (!response.ok()) return End(response.status());
  Answer(*std::move(response));
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
