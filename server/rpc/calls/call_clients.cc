// These functions of `Call` limit how long it waits for its client and how much
// the client may send, and end its waits when the client has left.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "backends/core/steady_now.h"
#include "grpc/grpc.h"
#include "proto/call_metadata.h"
#include "server/rpc/calls/call.h"

namespace convgrad {
namespace {

// Returns gRPC's call object with a reference, because other threads may cancel
// it after our call is deleted.
std::shared_ptr<grpc_call> HoldGrpcCall(grpc::ServerContextBase& context) {
  grpc_call* const call = context.c_call();
  grpc_call_ref(call);
  return {call, grpc_call_unref};
}

absl::Status OverrunError() {
  return InvalidField(Reason::kByteCountMismatch, "connection",
                      "more bytes than its calls have declared",
                      absl::StrCat("in each call's ", kRequestBytesKey,
                                   " the bytes of its payloads, at least"));
}

}  // namespace

void Call::AwaitClient(absl::Time until, const std::function<void()>& start) {
  // Reads deadline_ first, because the call may be deleted when `start`
  // returns.
  const absl::Time limit = std::min(until, deadline_);
  ClientWatch& watch = *services_.client_watch;
  const uint64_t id =
      watch.Add([this] { OnSlowClient(); }, absl::InfiniteFuture(),
                services_.traffic->CountOf(context_->peer()));
  client_wait_ = id;
  HandOver();
  start();
  // Sets the limit after `start`, because OnSlowClient must not end a call
  // while `start` still uses it.
  watch.SetLimit(id, limit);
}

bool Call::StopAwaitingClient() {
  services_.arrivals->Settle(expected_message_.exchange(0));
  return services_.client_watch->Remove(client_wait_);
}

void Call::AwaitSession(const std::function<void(SessionOutcome)>& start,
                        SessionOutcome ended) {
  const CallHold hold(this);
  ClientWatch& watch = *services_.client_watch;
  session_ended_ = std::move(ended);
  const uint64_t id = watch.Add([this] {
    HandOver();
    std::exchange(session_ended_, nullptr)(WhyGone());
  });
  session_wait_ = id;
  is_held_ = true;
  HandOver();
  start([this, id,
         held = std::make_shared<CallHold>(this)](const absl::Status& outcome) {
    HandOver();
    is_held_ = false;
    if (!services_.client_watch->Remove(id)) return;  // The wait has ended.
    std::exchange(session_ended_, nullptr)(outcome);
  });
  watch.SetLimit(id, deadline_);
  // If the client cancelled before, OnCancel found no wait to end.
  if (*cancelled_) CancelSessionWait();
  HandOver();
}

void Call::ExpectMessage(int64_t bytes) {
  if (overrun_ == nullptr) {
    overrun_ = std::make_shared<std::atomic<bool>>(false);
  }
  expected_message_ = services_.arrivals->Expect(
      context_->peer(), bytes,
      [owner = HoldGrpcCall(*context_), overrun = overrun_](bool is_only_one) {
        *overrun = true;
        // If the connection has several calls, the server doesn't know which
        // one is wrong. It returns UNAVAILABLE, so that the client retries the
        // others.
        grpc_call_cancel_with_status(
            owner.get(),
            is_only_one ? GRPC_STATUS_INVALID_ARGUMENT
                        : GRPC_STATUS_UNAVAILABLE,
            std::string(OverrunError().message()).c_str(), nullptr);
      });
}

void Call::WatchAnswer(int64_t bytes) {
  ClientWatch& watch = *services_.client_watch;
  watch.Remove(answer_wait_);
  const std::shared_ptr<grpc_call> owner = HoldGrpcCall(*context_);
  answer_wait_ = watch.Add([owner] { grpc_call_cancel(owner.get(), nullptr); },
                           SteadyNow() + watch.AllowedFor(bytes),
                           services_.traffic->CountOf(context_->peer()));
}

absl::Status Call::WhyGone() const {
  if (overrun_ != nullptr && *overrun_) return OverrunError();
  if (deadline_ <= SteadyNow()) {
    return DeadlineExceeded("deadline", "passed", "");
  }
  return MakeError(absl::StatusCode::kCancelled,
                   {Reason::kCancelled, "call", "cancelled by its client", ""});
}

bool Call::FailedToRead() const {
  return grpc_call_failed_before_recv_message(context_->c_call()) != 0;
}

bool Call::CancelTurn() {
  if (!session_.Withdraw()) return false;
  OnTurn(ChangeOrder::Decision::Refuse(WhyGone()));
  return true;
}

bool Call::CancelSessionWait() {
  if (!services_.client_watch->Remove(session_wait_)) return false;
  std::exchange(session_ended_, nullptr)(WhyGone());
  return true;
}

bool Call::CancelWait() {
  const uint64_t waiter = waiter_id_;
  if (waiter == 0 || !services_.memory->budget.CancelWait(waiter)) return false;
  EndWait(WhyGone());
  return true;
}

void Call::OnCancel() {
  HandOver();
  *cancelled_ = true;
  if (CancelSessionWait() || CancelTurn() || CancelWait()) return;
  OnGone();
  HandOver();
}

}  // namespace convgrad
