#include "server/rpc/session_calls.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "proto/codec/session_codec.h"
#include "server/rpc/calls/call_session.h"

namespace convgrad {
namespace {

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
  message.set_durable(info.durable);
  message.set_durable_number(info.durable_number);
  message.set_on_disk(info.on_disk);
  for (const auto& [name, snapshot] : info.snapshots) {
    v1::NamedSnapshot& named = *message.add_snapshots();
    named.set_name(name);
    named.set_number(snapshot.number);
    named.set_bytes(snapshot.bytes);
  }
  if (info.expires < absl::InfiniteFuture() && !info.on_disk) {
    message.set_remaining_seconds(
        std::max(0.0, absl::ToDoubleSeconds(info.expires - now)));
  }
  return message;
}

}  // namespace

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

}  // namespace convgrad
