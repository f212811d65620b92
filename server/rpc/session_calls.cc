#include "server/rpc/session_calls.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
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

absl::Status HandleListSessions(PlainCall* call) {
  ASSIGN_OR_RETURN(const auto request, call->Parse<v1::ListSessionsRequest>());
  const SessionCaller caller = CallerOf(call->permit());
  if (request.everybody() && !caller.is_admin) {
    return MakeError(absl::StatusCode::kPermissionDenied,
                     {Reason::kForbidden, "everybody",
                      "true, by a client without the role admin", "false"});
  }
  const SessionTable& sessions = *call->services().sessions;
  const absl::Time now = sessions.now();
  v1::ListSessionsResponse response;
  for (const SessionInfo& info : sessions.List(caller, request.everybody())) {
    *response.add_sessions() = Encode(info, now);
  }
  return call->AnswerWith(response);
}

absl::Status HandleHaveTensors(PlainCall* call) {
  ASSIGN_OR_RETURN(const auto request, call->Parse<v1::HaveTensorsRequest>());
  if (request.digests_size() > kMaxNamedTensors) {
    return OutOfRange("digests", request.digests_size(),
                      absl::StrCat("at most ", kMaxNamedTensors));
  }
  const DigestIndex& digests = *call->services().sessions->digests();
  v1::HaveTensorsResponse response;
  for (const std::string& digest : request.digests()) {
    response.add_have(digests.Find(call->client(), digest).has_value());
  }
  return call->AnswerWith(response);
}

}  // namespace convgrad
