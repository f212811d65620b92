#include "server/rpc/session_calls.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "proto/codec/codec.h"
#include "proto/codec/session_codec.h"
#include "server/rpc/calls/call_session.h"

namespace convgrad {
namespace {

// The most sessions that a refusal names.
constexpr size_t kNamedSessions = 5;

// `epoch` is the epoch of the caller.
void Describe(const SessionUse& session, int64_t epoch,
              v1::SessionResponse* response) {
  const KeptSession::Settings& settings = session->settings();
  response->set_session_id(settings.id);
  response->set_number(session->state()->number);
  response->set_epoch(epoch);
  response->set_lease_seconds(absl::ToDoubleSeconds(settings.lease));
  response->set_quota_bytes(settings.quota_bytes);
  response->set_window(ChangeOrder::kWindow);
}

absl::StatusOr<SessionTable::OpenRequest> Decode(
    const v1::OpenSessionRequest& request) {
  if (request.durable()) {
    return MakeError(absl::StatusCode::kUnimplemented,
                     {Reason::kUnsupported, "durable", "true", "false"});
  }
  SessionTable::OpenRequest open;
  open.open_id = request.open_id();
  open.name = request.name();
  open.readers.assign(request.readers().begin(), request.readers().end());
  if (request.lease_seconds() != 0) {
    open.lease = absl::Seconds(request.lease_seconds());
  }
  open.quota_bytes = request.quota_bytes();
  return open;
}

v1::SessionInfo Encode(const SessionInfo& info, absl::Time now) {
  v1::SessionInfo message;
  message.set_handle(info.handle);
  message.set_name(info.name);
  message.set_client(info.client);
  message.set_epoch(info.epoch);
  message.set_number(info.number);
  message.set_tensors(info.tensors);
  message.set_kept_bytes(info.kept_bytes);
  message.set_reply_bytes(info.reply_bytes);
  message.set_quota_bytes(info.quota_bytes);
  message.set_lease_seconds(absl::ToDoubleSeconds(info.lease));
  if (info.expires < absl::InfiniteFuture()) {
    message.set_remaining_seconds(
        std::max(0.0, absl::ToDoubleSeconds(info.expires - now)));
  }
  return message;
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
    if (info.expires == absl::InfiniteFuture()) {
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

absl::Status OpenSession(const CallServices& services, const CallPermit& permit,
                         const v1::OpenSessionRequest& request,
                         v1::SessionResponse* response) {
  ASSIGN_OR_RETURN(const SessionTable::OpenRequest open, Decode(request));
  const SessionCaller caller = CallerOf(permit);
  const absl::StatusOr<SessionUse> session =
      services.sessions->Open(caller, open);
  if (absl::IsResourceExhausted(session.status())) {
    return WithSessions(session.status(),
                        services.sessions->List(caller, /*everybody=*/false),
                        services.sessions->now());
  }
  RETURN_IF_ERROR(session.status());
  Describe(*session, /*epoch=*/1, response);
  return absl::OkStatus();
}

absl::Status RenewSession(const CallServices& services,
                          const CallPermit& permit,
                          const v1::RenewSessionRequest& request,
                          v1::SessionResponse* response) {
  ASSIGN_OR_RETURN(
      const SessionUse session,
      services.sessions->Find(CallerOf(permit), request.session_id()));
  Describe(session, session->epoch(), response);
  return absl::OkStatus();
}

absl::Status CloseSession(const CallServices& services,
                          const CallPermit& permit,
                          const v1::CloseSessionRequest& request,
                          v1::CloseSessionResponse* /*response*/) {
  const SessionCaller caller = CallerOf(permit);
  if (request.handle().empty()) {
    return services.sessions->Close(caller, request.session_id());
  }
  if (request.session_id().empty()) {
    return services.sessions->CloseByHandle(caller, request.handle());
  }
  return InvalidField(Reason::kUnsupported, "handle", "one beside session_id",
                      "one of them");
}

absl::Status ListSessions(const CallServices& services,
                          const CallPermit& permit,
                          const v1::ListSessionsRequest& request,
                          v1::ListSessionsResponse* response) {
  const SessionCaller caller = CallerOf(permit);
  if (request.everybody() && !caller.is_admin) {
    return MakeError(absl::StatusCode::kPermissionDenied,
                     {Reason::kForbidden, "everybody",
                      "true, by a client without the role admin", "false"});
  }
  const absl::Time now = services.sessions->now();
  for (const SessionInfo& info :
       services.sessions->List(caller, request.everybody())) {
    *response->add_sessions() = Encode(info, now);
  }
  return absl::OkStatus();
}

absl::Status HaveTensors(const CallServices& services, const CallPermit& permit,
                         const v1::HaveTensorsRequest& request,
                         v1::HaveTensorsResponse* response) {
  if (request.digests_size() > kMaxNamedTensors) {
    return InvalidField(Reason::kOutOfRange, "digests",
                        absl::StrCat(request.digests_size()),
                        absl::StrCat("at most ", kMaxNamedTensors));
  }
  for (const std::string& digest : request.digests()) {
    response->add_have(services.sessions->digests()
                           ->Find(permit.client(), digest)
                           .has_value());
  }
  return absl::OkStatus();
}

void ResumeSessionCall::OnMessage(grpc::ByteBuffer* message) {
  absl::StatusOr<SessionUse> found = FindSession(message);
  if (!found.ok()) return End(found.status());
  resumed_ = *std::move(found);
  const int64_t epoch = resumed_->StartEpoch();
  resumed_->AwaitSettled([this, epoch](const ChangeOrder::Decision& settled) {
    HandOver();
    v1::SessionResponse response;
    if (settled.runs()) {
      resumed_->DropTapes();
      Describe(resumed_, epoch, &response);
    }
    Finish(settled.why, response);
  });
}

absl::StatusOr<SessionUse> ResumeSessionCall::FindSession(
    grpc::ByteBuffer* message) {
  v1::ResumeSessionRequest request;
  RETURN_IF_ERROR(Split(message, &request).status());
  const SessionCaller caller = CallerOf(permit());
  if (request.session_id().empty()) {
    return services().sessions->FindByName(caller, request.name());
  }
  return services().sessions->Find(caller, request.session_id());
}

}  // namespace convgrad
