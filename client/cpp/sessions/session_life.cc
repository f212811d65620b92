// Implements how a session is renewed, resumed after a restart, and closed.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "backends/core/status.h"
#include "client/cpp/call_checks.h"
#include "client/cpp/calls/call_threads.h"
#include "client/cpp/calls/stoppable_sleep.h"
#include "client/cpp/sessions/change_sender.h"
#include "client/cpp/sessions/session.h"
#include "client/cpp/sessions/session_wire.h"

namespace convgrad {
namespace {

// Enough for a session's window and concurrent reads.
constexpr int kMostThreads = 128;

constexpr int kRenewalsPerLease = 3;
// Firewalls and NATs forget connections that are silent for minutes. A call
// reaches the server, whereas a ping would end at a proxy.
constexpr absl::Duration kLongestSilence = absl::Seconds(30);
// The destructor waits for a running renewal.
constexpr absl::Duration kRenewalTime = absl::Seconds(5);

// The server may have to read a whole session from its disk, or write one.
constexpr absl::Duration kDiskTime = absl::Minutes(10);

// Returns whether a renewal says that the client can't use the session any
// more.
bool HasEnded(const absl::Status& renewed) {
  return absl::IsNotFound(renewed) || HasReason(renewed, Reason::kTakenOver);
}

}  // namespace

Session::Session(std::unique_ptr<SessionWire> wire,
                 const v1::SessionResponse& opened, int64_t replay_bytes)
    : is_durable_(opened.durable()),
      wire_(std::move(wire)),
      answer_(opened),
      changes_(std::make_unique<ChangeSender>(
          opened, wire_->retries(), wire_->VoidSender(),
          is_durable_ ? std::optional(ChangeSender::Durability{
                            .resume = [this] { return ResumeItself(); },
                            .save =
                                [this] {
                                  return SaveState("", absl::Now() + kDiskTime);
                                },
                            .replay_bytes = replay_bytes})
                      : std::nullopt)),
      threads_(std::make_unique<CallThreads>(kMostThreads)),
      lease_keeper_([this, lease = absl::Seconds(opened.lease_seconds())](
                        const std::stop_token& stop) {
        const absl::Duration interval =
            std::min(lease / kRenewalsPerLease, kLongestSilence);
        while (SleepUnlessStopped(stop, interval)) {
          const absl::Status renewed = RenewUntil(absl::Now() + kRenewalTime);
          if (HasEnded(renewed)) return;
        }
      }) {}

Session::~Session() = default;

const std::string& Session::id() const { return changes_->id(); }

int64_t Session::number() const { return changes_->number(); }

int64_t Session::durable_number() const { return changes_->durable_number(); }

v1::SessionResponse Session::answer() const {
  MutexLock lock(&mutex_);
  return answer_;
}

absl::Status Session::Renew() { return RenewUntil(absl::InfiniteFuture()); }

absl::Status Session::RenewUntil(absl::Time deadline) {
  const int64_t epoch = changes_->epoch();
  const absl::Status renewed = wire_->Renew(id(), epoch, deadline);
  if (HasEnded(renewed)) return changes_->StopIn(epoch, renewed);
  // The lease is renewed. The next change or read restores the session.
  if (HasReason(renewed, Reason::kRestored)) return absl::OkStatus();
  return renewed;
}

absl::Status Session::Close() {
  while (true) {
    const int64_t epoch = changes_->AwaitEpoch();
    const absl::Status closed =
        wire_->Close(id(), epoch, absl::InfiniteFuture());
    const bool is_of_another = HasReason(closed, Reason::kTakenOver);
    if (!is_of_another || !changes_->StopIn(epoch, closed).ok()) return closed;
  }
}

absl::StatusOr<v1::SessionResponse> Session::ResumeItself() {
  v1::ResumeSessionRequest request;
  request.set_session_id(id());
  request.set_epoch(changes_->epoch());
  request.set_call_id(RandomRequestId());
  ASSIGN_OR_RETURN(const auto answer, wire_->Call<v1::SessionResponse>(
                                          SessionMethod("ResumeSession"),
                                          request, absl::Now() + kDiskTime));
  MutexLock lock(&mutex_);
  answer_ = answer;
  return answer;
}

}  // namespace convgrad
