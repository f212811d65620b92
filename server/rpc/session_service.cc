#include "server/rpc/session_service.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "proto/codec.h"
#include "proto/session_codec.h"
#include "server/rpc/plain_call.h"
#include "server/rpc/session_part.h"

namespace convgrad {
namespace {

// Lets a call in and does its work at once.
template <typename Request>
grpc::ServerUnaryReactor* Answer(
    const CallServices& services, grpc::CallbackServerContext* context,
    absl::string_view method, const Request& request,
    const std::function<absl::Status(const SessionCaller&)>& work) {
  PlainCall call(services, context, method, Role::kTrain);
  absl::Status status = call.admission();
  if (status.ok()) status = CheckCriticalFields(request);
  if (status.ok()) status = work(CallerOf(call.visit()));
  call.End(status);
  return call.reactor();
}

// `epoch` is the caller's own.
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
  message.set_name(info.name);
  message.set_client(info.client);
  message.set_epoch(info.epoch);
  message.set_number(info.number);
  message.set_tensors(info.tensors);
  message.set_kept_bytes(info.kept_bytes);
  message.set_quota_bytes(info.quota_bytes);
  message.set_lease_seconds(absl::ToDoubleSeconds(info.lease));
  if (info.expires < absl::InfiniteFuture()) {
    message.set_remaining_seconds(
        std::max(0.0, absl::ToDoubleSeconds(info.expires - now)));
  }
  return message;
}

}  // namespace

grpc::ServerUnaryReactor* SessionService::OpenSession(
    grpc::CallbackServerContext* context, const v1::OpenSessionRequest* request,
    v1::SessionResponse* response) {
  return Answer(services_, context, "OpenSession", *request,
                [&](const SessionCaller& caller) -> absl::Status {
                  ASSIGN_OR_RETURN(const SessionTable::OpenRequest open,
                                   Decode(*request));
                  ASSIGN_OR_RETURN(const SessionUse session,
                                   services_.sessions->Open(caller, open));
                  Describe(session, /*epoch=*/1, response);
                  return absl::OkStatus();
                });
}

grpc::ServerUnaryReactor* SessionService::ResumeSession(
    grpc::CallbackServerContext* context,
    const v1::ResumeSessionRequest* request, v1::SessionResponse* response) {
  // What an answer that comes later holds.
  struct Resuming {
    PlainCall call;
    SessionUse session;
    int64_t epoch = 0;
  };
  auto resuming = std::make_shared<Resuming>(
      Resuming{{services_, context, "ResumeSession", Role::kTrain}, {}, 0});
  grpc::ServerUnaryReactor* reactor = resuming->call.reactor();
  const auto find = [&]() -> absl::StatusOr<SessionUse> {
    RETURN_IF_ERROR(resuming->call.admission());
    RETURN_IF_ERROR(CheckCriticalFields(*request));
    const SessionCaller caller = CallerOf(resuming->call.visit());
    if (request->session_id().empty()) {
      return services_.sessions->FindByName(caller, request->name());
    }
    return services_.sessions->Find(caller, request->session_id());
  };
  absl::StatusOr<SessionUse> session = find();
  if (!session.ok()) {
    resuming->call.End(session.status());
    return reactor;
  }
  resuming->session = *std::move(session);
  resuming->epoch = resuming->session->StartEpoch();
  resuming->session->AwaitSettled(
      [resuming, response](const ChangeOrder::Decision& decision) {
        if (decision.ok()) {
          Describe(resuming->session, resuming->epoch, response);
        }
        resuming->call.End(decision.status());
      });
  return reactor;
}

grpc::ServerUnaryReactor* SessionService::RenewSession(
    grpc::CallbackServerContext* context,
    const v1::RenewSessionRequest* request, v1::SessionResponse* response) {
  return Answer(services_, context, "RenewSession", *request,
                [&](const SessionCaller& caller) -> absl::Status {
                  ASSIGN_OR_RETURN(
                      const SessionUse session,
                      services_.sessions->Find(caller, request->session_id()));
                  Describe(session, session->epoch(), response);
                  return absl::OkStatus();
                });
}

grpc::ServerUnaryReactor* SessionService::CloseSession(
    grpc::CallbackServerContext* context,
    const v1::CloseSessionRequest* request,
    v1::CloseSessionResponse* /*response*/) {
  return Answer(services_, context, "CloseSession", *request,
                [&](const SessionCaller& caller) {
                  return services_.sessions->Close(caller,
                                                   request->session_id());
                });
}

grpc::ServerUnaryReactor* SessionService::ListSessions(
    grpc::CallbackServerContext* context,
    const v1::ListSessionsRequest* request,
    v1::ListSessionsResponse* response) {
  return Answer(services_, context, "ListSessions", *request,
                [&](const SessionCaller& caller) -> absl::Status {
                  if (request->everybody() && !caller.is_admin) {
                    return MakeError(
                        absl::StatusCode::kPermissionDenied,
                        {Reason::kForbidden, "everybody",
                         "true, by a client without the role admin", "false"});
                  }
                  const absl::Time now = services_.sessions->now();
                  for (const SessionInfo& info :
                       services_.sessions->List(caller, request->everybody())) {
                    *response->add_sessions() = Encode(info, now);
                  }
                  return absl::OkStatus();
                });
}

grpc::ServerUnaryReactor* SessionService::HaveTensors(
    grpc::CallbackServerContext* context, const v1::HaveTensorsRequest* request,
    v1::HaveTensorsResponse* response) {
  return Answer(services_, context, "HaveTensors", *request,
                [&](const SessionCaller& caller) -> absl::Status {
                  if (request->digests_size() > kMaxNamedTensors) {
                    return InvalidField(
                        Reason::kOutOfRange, "digests",
                        absl::StrCat(request->digests_size()),
                        absl::StrCat("at most ", kMaxNamedTensors));
                  }
                  for (const std::string& digest : request->digests()) {
                    response->add_have(services_.sessions->digests()
                                           ->Find(caller.client, digest)
                                           .has_value());
                  }
                  return absl::OkStatus();
                });
}

}  // namespace convgrad
