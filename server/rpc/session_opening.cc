// These calls open, resume, renew and close a session.
#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "server/rpc/calls/call_session.h"
#include "server/rpc/capabilities.h"
#include "server/rpc/session_calls.h"

namespace convgrad {
namespace {

// The most sessions that a refusal names.
constexpr size_t kNamedSessions = 5;

SessionRequest Decode(const v1::OpenSessionRequest& request) {
  SessionRequest open;
  open.open_id = request.open_id();
  open.name = request.name();
  open.readers.assign(request.readers().begin(), request.readers().end());
  if (request.lease_seconds() != 0) {
    open.lease = absl::Seconds(request.lease_seconds());
  }
  open.quota_bytes = request.quota_bytes();
  open.durable = request.durable();
  return open;
}

// Adds the client's largest sessions to a refusal, because its user must know
// which sessions to close.
absl::Status WithSessions(const absl::Status& refusal,
                          std::vector<SessionInfo> sessions, absl::Time now) {
  if (sessions.empty()) return refusal;
  std::sort(sessions.begin(), sessions.end(),
            [](const SessionInfo& one, const SessionInfo& other) {
              return std::tie(other.kept_bytes, one.handle) <
                     std::tie(one.kept_bytes, other.handle);
            });
  std::string text(refusal.message());
  const char* separator = "; open: ";
  for (size_t i = 0; i < std::min(kNamedSessions, sessions.size()); ++i) {
    const SessionInfo& info = sessions[i];
    absl::StrAppend(&text, separator, info.handle);
    if (!info.name.empty()) absl::StrAppend(&text, " '", info.name, "'");
    absl::StrAppend(&text, " with ", info.kept_bytes, " bytes, ");
    if (info.on_disk) {
      absl::StrAppend(&text, "on disk");
    } else if (info.expires == absl::InfiniteFuture()) {
      absl::StrAppend(&text, "in use");
    } else {
      absl::StrAppend(
          &text, "until ",
          std::max(int64_t{0}, absl::ToInt64Seconds(info.expires - now)),
          " s from now");
    }
    separator = "; ";
  }
  if (sessions.size() > kNamedSessions) {
    absl::StrAppend(&text, "; and ", sessions.size() - kNamedSessions, " more");
  }
  absl::StrAppend(&text, "; CloseSession ends one by its handle");
  absl::Status named(refusal.code(), text);
  refusal.ForEachPayload(
      [&](absl::string_view type, const absl::Cord& payload) {
        named.SetPayload(type, payload);
      });
  return named;
}

}  // namespace

absl::Status SessionCall::OnMessage() {
  ASSIGN_OR_RETURN(use_, FindSession());
  AwaitSession(
      [this](SessionOutcome ready) {
        services().sessions->AwaitContent(use_.session(), std::move(ready));
      },
      [this](const absl::Status& loaded) {
        if (!loaded.ok()) return End(loaded);
        OnSession();
      });
  return absl::OkStatus();
}

void SessionCall::Respond(int64_t epoch) {
  const KeptSession::Settings& settings = use_->settings();
  const std::shared_ptr<const KeptState> state = use_->state();
  v1::SessionResponse response;
  response.set_session_id(settings.id);
  response.set_number(state->number);
  response.set_epoch(epoch);
  response.set_lease_seconds(absl::ToDoubleSeconds(settings.lease));
  response.set_quota_bytes(settings.quota_bytes);
  response.set_window(ChangeOrder::kWindow);
  response.set_durable(settings.durable);
  response.set_durable_number(use_->durable_number());
  if (state->trainer_state != nullptr) {
    response.set_trainer_state(*state->trainer_state);
  }
  response.set_address(services().config->advertise);
  if (state->computed_by != nullptr) {
    AddDifferences(*state->computed_by, FactsOf(services().capabilities()),
                   response.mutable_differences());
  }
  Finish(absl::OkStatus(), response);
}

void SessionCall::Save(SessionArchive::Done done) {
  if (!use_->settings().durable) return done(absl::OkStatus());
  AwaitSession(
      [this](SessionOutcome saved) {
        services().sessions->archive()->Save(use_.session(), std::move(saved));
      },
      [this, done = std::move(done)](const absl::Status& saved) {
        const bool is_gone =
            absl::IsCancelled(saved) || absl::IsDeadlineExceeded(saved);
        if (is_gone) return End(saved);
        done(saved);
      });
}

absl::StatusOr<SessionUse> OpenSessionCall::FindSession() {
  ASSIGN_OR_RETURN(const auto request, Parse<v1::OpenSessionRequest>());
  const SessionCaller caller = CallerOf(permit());
  absl::StatusOr<SessionUse> session =
      services().sessions->Open(caller, Decode(request));
  if (!absl::IsResourceExhausted(session.status())) return session;
  return WithSessions(session.status(),
                      services().sessions->List(caller, /*everybody=*/false),
                      services().sessions->now());
}

void OpenSessionCall::OnSession() {
  if (!use()->settings().durable) return Respond(/*epoch=*/1);
  AwaitSession(
      [this, session = use().session(),
       caller = CallerOf(permit())](const SessionOutcome& ended) {
        SessionTable& sessions = *services().sessions;
        // The session closes even if the client has left meanwhile.
        const auto saved = [=, &sessions](const absl::Status& outcome) {
          // The opening that this call repeats may have failed and closed it.
          if (outcome.ok() && !session->IsOpen(sessions.now())) {
            return ended(NoSuchSession());
          }
          // This call may repeat the one that opened a session, which is on
          // disk.
          if (outcome.ok() || session->durable_snapshot().number >= 0) {
            return ended(outcome);
          }
          sessions.Close(
              caller, session->settings().id, /*held=*/0,
              [=](const absl::Status& /*closed*/) { ended(outcome); });
        };
        sessions.archive()->Save(session, saved);
      },
      [this](const absl::Status& saved) {
        if (!saved.ok()) return End(saved);
        Respond(/*epoch=*/1);
      });
}

absl::StatusOr<SessionUse> RenewSessionCall::FindSession() {
  ASSIGN_OR_RETURN(const auto request, Parse<v1::RenewSessionRequest>());
  epoch_ = request.epoch();
  return services().sessions->Find(CallerOf(permit()), request.session_id());
}

void RenewSessionCall::OnSession() {
  absl::Status mine =
      epoch_ == 0 ? absl::OkStatus() : use()->CheckEpoch(epoch_);
  // An epoch that a failure has ended is followed by another one of the caller.
  if (!mine.ok() && !absl::IsAborted(mine)) return End(std::move(mine));
  Respond(use()->info().epoch);
}

absl::StatusOr<SessionUse> ResumeSessionCall::FindSession() {
  ASSIGN_OR_RETURN(const auto request, Parse<v1::ResumeSessionRequest>());
  const SessionCaller caller = CallerOf(permit());
  held_ = request.epoch();
  call_id_ = request.call_id();
  if (held_ != 0 || !call_id_.empty()) {
    RETURN_IF_ERROR(CheckCallId("call_id", call_id_));
  }
  if (request.session_id().empty()) {
    return services().sessions->FindByName(caller, request.name());
  }
  return services().sessions->Find(caller, request.session_id());
}

void ResumeSessionCall::OnSession() {
  // The client may have left meanwhile.
  if (*cancelled()) return End(WhyGone());
  const absl::StatusOr<int64_t> started = use()->StartEpoch(held_, call_id_);
  if (!started.ok()) return End(started.status());
  AwaitSession(
      [this, epoch = *started](const SessionOutcome& ended) {
        use()->AwaitSettled(
            [this, epoch, ended](const ChangeOrder::Decision& settled) {
              HandOver();
              if (!settled.runs()) return ended(settled.why);
              // The epoch has begun, even if this call has ended meanwhile.
              use()->DropTapes(epoch, services().sessions->now());
              ended(absl::OkStatus());
            });
      },
      [this, epoch = *started](const absl::Status& settled) {
        if (!settled.ok()) return End(settled);
        // A client that resumes can't repeat the changes of the client before
        // it.
        Save([this, epoch](const absl::Status& /*saved*/) { Respond(epoch); });
      });
}

absl::Status HandleCloseSession(PlainCall* call) {
  ASSIGN_OR_RETURN(const auto request, call->Parse<v1::CloseSessionRequest>());
  if (!request.handle().empty() && !request.session_id().empty()) {
    return InvalidField(Reason::kUnsupported, "handle", "one beside session_id",
                        "one of them");
  }
  call->AwaitSession(
      [call, &request, caller = CallerOf(call->permit())](
          const PlainCall::SessionOutcome& closed) {
        SessionTable& sessions = *call->services().sessions;
        if (request.handle().empty()) {
          sessions.Close(caller, request.session_id(), request.epoch(), closed);
        } else {
          sessions.CloseByHandle(caller, request.handle(), request.epoch(),
                                 closed);
        }
      },
      [call](const absl::Status& closed) {
        call->Finish(closed, v1::CloseSessionResponse());
      });
  return absl::OkStatus();
}

}  // namespace convgrad
