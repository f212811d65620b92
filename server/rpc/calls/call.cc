#include "server/rpc/calls/call.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "backends/core/steady_now.h"
#include "backends/core/thread_order.h"
#include "grpc/grpc.h"
#include "proto/call_metadata.h"
#include "server/memory/admission.h"
#include "server/rpc/calls/call_record.h"
#include "server/rpc/calls/report.h"
#include "server/rpc/calls/status_conversion.h"

namespace convgrad {
namespace {

using Decision = ChangeOrder::Decision;

absl::Time DeadlineOf(const grpc::CallbackServerContext& context,
                      const CallServices& services) {
  const absl::Time now = SteadyNow();
  const absl::Time latest = now + services.config->max_deadline;
  const auto deadline = context.deadline();
  // gRPC represents a call without a deadline by this value.
  if (deadline == std::chrono::system_clock::time_point::max()) {
    return std::min(now + services.config->default_deadline, latest);
  }
  // context.deadline() has just converted gRPC's own time by the wall clock.
  const absl::Duration left =
      absl::FromChrono(deadline) -
      absl::FromChrono(std::chrono::system_clock::now());
  return std::min(now + left, latest);
}

}  // namespace

void Call::HandOver() {
  // The token isn't a member, because the first use of a member would be as
  // unordered as the call itself.
  static char token;
  HandedOver(&token);
}

Call::Call(const Method& method, const CallServices& services,
           grpc::GenericCallbackServerContext* context)
    : method_(method),
      services_(services),
      context_(context),
      arrival_(SteadyNow()),
      role_(context->client_metadata().contains(kSequenceKey)
                ? std::max(method.role, ClientRole::kTrain)
                : method.role),
      deadline_(DeadlineOf(*context, services)),
      cancelled_(std::make_shared<std::atomic<bool>>(false)) {
  sample_.operation = std::string(method.operation);
  services.observer->OnStarted(method.name);
}

Call::~Call() {
  services_.client_watch->Remove(answer_wait_);
  if (counted_peer_.empty()) return;
  services_.traffic->EndCall(counted_peer_, SteadyNow());
}

void Call::Begin() {
  // Before the gate, because metrics count its refusals by priority.
  const absl::string_view priority = Metadata(kPriorityKey);
  for (Priority known : kAllPriorities) {
    if (NameOf(known) == priority) priority_ = known;
  }
  if (!priority.empty() && NameOf(priority_) != priority) {
    refusal_ = InvalidEnum(kPriorityKey, absl::StrCat("'", priority, "'"),
                           "batch or interactive");
  }
  sample_.priority = std::string(NameOf(priority_));
  absl::StatusOr<Lifecycle::ActiveCall> active = services_.lifecycle->Enter();
  if (!active.ok()) return End(active.status());
  active_ = *std::move(active);
  absl::StatusOr<CallPermit> permit = services_.gate->Enter(*context_, role_);
  if (!permit.ok()) return End(permit.status());
  permit_ = *std::move(permit);
  // Not before, because a client without a token could keep connections by
  // calls that are refused.
  counted_peer_ = context_->peer();
  services_.traffic->BeginCall(counted_peer_);
  const bool is_change = !Metadata(kSequenceKey).empty();
  if (refusal_.ok() && is_change && !method_.may_change()) {
    refusal_ = InvalidField(Reason::kUnsupported, kSequenceKey, "a number",
                            "none: the method only reads");
  }
  Start();
}

absl::string_view Call::Metadata(absl::string_view key) const {
  const auto& metadata = context_->client_metadata();
  const auto found = metadata.find(grpc::string_ref(key.data(), key.size()));
  if (found == metadata.end()) return "";
  return absl::string_view(found->second.data(), found->second.size());
}

void Call::AwaitTurn(bool may_be_early) {
  const CallHold hold(this);
  const auto metadata = [this](absl::string_view key) { return Metadata(key); };
  absl::Status status =
      session_.Enter(services_.sessions, metadata, permit_,
                     /*only_computes=*/role_ == ClientRole::kInfer);
  if (status.ok() && method_.needs_session()) {
    status = session_.CheckId("", "session");
  }
  if (status.ok() && method_.session == SessionRule::kChanges) {
    status = session_.CheckChange("session");
  }
  if (!status.ok()) return OnTurn(Decision::Refuse(std::move(status)));
  if (!session_.in_session()) {
    return OnTurn(refusal_.ok() ? Decision::Run() : Decision::Refuse(refusal_));
  }
  if (sample() != nullptr) sample()->session = session_.settings().label;
  if (!session_.settings().durable) return AwaitTurnInSession(may_be_early);
  // The content may be only on disk.
  AwaitSession(
      [this](SessionOutcome ready) {
        services_.sessions->AwaitContent(session_.session(), std::move(ready));
      },
      [this, may_be_early](const absl::Status& loaded) {
        if (!loaded.ok()) return OnTurn(Decision::Refuse(loaded));
        AwaitTurnInSession(may_be_early);
      });
}

void Call::AwaitTurnInSession(bool may_be_early) {
  std::function<void()> admit_early;
  // The hold keeps the call, because it may end before the session runs
  // `admit_early`.
  if (may_be_early && refusal_.ok()) {
    admit_early = [this, hold = std::make_shared<CallHold>(this)] {
      OnEarlyAdmission();
    };
  }
  session_.Await(
      deadline_,
      [this](const ChangeOrder::Decision& decision) {
        HandOver();
        if (absl::IsAborted(decision.why)) {
          services_.sessions->CountAbort();
        }
        OnTurn(decision.runs() && !refusal_.ok() ? Decision::Refuse(refusal_)
                                                 : decision);
      },
      std::move(admit_early));
  // If the client cancelled before Await, OnCancel found no wait to end.
  if (*cancelled_) CancelTurn();
  HandOver();
}

void Call::EndAs(const ChangeOrder::Decision& decision) {
  if (decision.kind == Decision::Kind::kRefuse) return End(decision.why);
  services_.sessions->CountRepeat();
  grpc::ByteBuffer response(
      *static_cast<const grpc::ByteBuffer*>(decision.reply.get()));
  End(absl::OkStatus(), &response);
}

void Call::Answer(absl::StatusOr<grpc::ByteBuffer> response) {
  if (!response.ok()) return End(response.status());
  if (session_.is_change()) {
    if (*cancelled_ || deadline_ <= SteadyNow()) return End(WhyGone());
    // The reply shares the slices of `response`.
    absl::Status status =
        session_.Commit(std::make_shared<const grpc::ByteBuffer>(*response));
    if (!status.ok()) return End(std::move(status));
  }
  End(absl::OkStatus(), &*response);
}

void Call::AwaitMemory(int64_t bytes) {
  const CallHold hold(this);
  reservation_.ShrinkTo(0);
  wait_start_ = SteadyNow();
  absl::Status held = permit_.Hold(bytes);
  if (!held.ok()) return EndWait(held);
  HandOver();
  absl::StatusOr<uint64_t> waiter = services_.memory->budget.Wait(
      {bytes, priority_, deadline_, client()},
      [this](absl::StatusOr<Reservation> granted) {
        HandOver();
        EndWait(std::move(granted));
      });
  if (!waiter.ok()) return EndWait(waiter.status());
  waiter_id_ = *waiter;
  // If the client cancelled before waiter_id_ was set, OnCancel found no wait
  // to end.
  if (*cancelled_) CancelWait();
  HandOver();
}

void Call::ContinueOn(const ClientExecutor& thread,
                      std::function<absl::Status()> work,
                      std::function<void()> next) {
  HandOver();
  thread(client(), [this, work = std::move(work), next = std::move(next)] {
    HandOver();
    const bool is_over = *cancelled_ || deadline_ <= SteadyNow();
    absl::Status status = is_over ? WhyGone() : work();
    if (!status.ok()) return End(std::move(status));
    next();
  });
}

void Call::Copy(int64_t bytes, std::function<absl::Status()> work,
                std::function<void()> next) {
  // A change of threads takes some 50 us, as long as to hash 64 KiB.
  constexpr int64_t kFewBytes = 64 << 10;
  const auto run = [](const std::string& /*client*/,
                      const std::function<void()>& task) { task(); };
  ContinueOn(
      bytes <= kFewBytes ? run : services_.copy,
      [this, work = std::move(work)] {
        const auto measured = sample_.times.decode.Measure();
        return work();
      },
      std::move(next));
}

AdmitHead Call::AdmitsHead() {
  return [this](int64_t bytes) -> absl::Status {
    // The part of the call's own overhead that is free for the head.
    constexpr int64_t kFreeBytes = kCallOverheadBytes / 2;
    const int64_t more = bytes * kMemoryPerHeadByte - kFreeBytes;
    if (more <= 0 || reservation_.bytes() == 0) return absl::OkStatus();
    return reservation_.TryGrow(more);
  };
}

void Call::EndWait(absl::StatusOr<Reservation> granted) {
  const absl::Status status = granted.status();
  if (granted.ok()) reservation_ = *std::move(granted);
  if (sample() != nullptr) {
    sample()->times.admission.Add(wait_start_, SteadyNow());
  }
  OnMemory(status);
}

void Call::OnDone() {
  HandOver();
  Release();
}

void Call::Release() {
  if (--holders_ == 0) delete this;
}

void Call::End(absl::Status status, grpc::ByteBuffer* response) {
  StopAwaitingClient();
  // A call whose client has left doesn't count as a success, because no one
  // reads the answer.
  if (status.ok() && *cancelled_) status = WhyGone();
  Settle(status);
  const std::optional<int64_t> number = session_.End(&status);
  if (number) {
    context_->AddTrailingMetadata(kNumberTrailer, absl::StrCat(*number));
    if (session_.settings().durable) {
      context_->AddTrailingMetadata(
          kDurableNumberTrailer,
          absl::StrCat(session_.session()->durable_number()));
    }
  }
  reservation_.ShrinkTo(0);
  if (sample() != nullptr) SetEnd(status, sample());
  RecordEnd(services_, client(), context_,
            {method_.service, method_.name,
             ParseTraceparent(Metadata(kTraceparentKey)), arrival_, SteadyNow(),
             status, sample()});
  // Frees the permit before the client gets its answer, because the client may
  // call again at once. A call that a disk still holds counts until it is
  // deleted, so that a client can't pile them up.
  if (!is_held_) permit_ = CallPermit();
  const bool answers = status.ok() && response != nullptr;
  WatchAnswer(answers ? static_cast<int64_t>(response->Length()) : 0);
  if (answers) {
    response_.Swap(response);
    HandOver();
    StartWriteAndFinish(&response_, grpc::WriteOptions(), grpc::Status::OK);
  } else {
    HandOver();
    Finish(ToGrpcStatus(status));
  }
}

}  // namespace convgrad
