// Implements how a session is opened or resumed.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "client/cpp/call_checks.h"
#include "client/cpp/credentials.h"
#include "client/cpp/replicas.h"
#include "client/cpp/sessions/change_sender.h"
#include "client/cpp/sessions/session.h"
#include "client/cpp/sessions/session_wire.h"

namespace convgrad {
namespace {

// Timeout for closing a session.
constexpr absl::Duration kBriefTime = absl::Seconds(2);

struct Opened {
  std::unique_ptr<SessionWire> wire;
  v1::SessionResponse answer;
};

absl::StatusOr<Opened> Ask(const ClientOptions& client, const char* method,
                           const google::protobuf::Message& request,
                           absl::Time deadline) {
  Opened opened;
  ASSIGN_OR_RETURN(opened.wire, SessionWire::Make(client));
  ASSIGN_OR_RETURN(opened.answer,
                   opened.wire->Call<v1::SessionResponse>(SessionMethod(method),
                                                          request, deadline));
  // Another lease would have the client renew it without a pause.
  const double lease = opened.answer.lease_seconds();
  if (lease >= 1) return opened;
  return BadReply("lease_seconds", absl::StrCat(lease), "at least 1");
}

// Connects to the address at which to call the session from now on.
// Errors: kFailedPrecondition if that is another server's; kUnavailable if it
// can't be reached.
absl::Status Follow(ClientOptions client, absl::Time deadline, Opened* opened) {
  const std::string asked = client.server;
  ASSIGN_OR_RETURN(client.server,
                   FollowedServer(asked, opened->answer.address()));
  if (client.server == asked) return absl::OkStatus();
  ASSIGN_OR_RETURN(auto wire, SessionWire::Make(client));
  const absl::Status found =
      wire->Renew(opened->answer.session_id(), /*epoch=*/0, deadline);
  if (absl::IsNotFound(found)) {
    return FailedPrecondition(
        Reason::kNotFound, "server",
        absl::StrCat("'", client.server, "', where the server at ", asked,
                     " doesn't have its sessions"),
        "--advertise with an address of that very server");
  }
  RETURN_IF_ERROR(found);
  opened->wire = std::move(wire);
  return absl::OkStatus();
}

// Returns the session of the replica that has it. Errors: as AskForSession.
absl::StatusOr<Opened> ResumeAtOne(const std::vector<ClientOptions>& replicas,
                                   ClientOptions client,
                                   const v1::ResumeSessionRequest& request) {
  absl::StatusOr<Opened> opened;
  const auto ask = [&](const ClientOptions& replica, absl::Time deadline) {
    opened = Ask(replica, "ResumeSession", request, deadline);
    if (!opened.ok()) return opened.status();
    client.server = replica.server;
    return Follow(client, deadline, &*opened);
  };
  RETURN_IF_ERROR(AskForSession(replicas, absl::InfiniteFuture(), ask));
  return opened;
}

absl::Status CheckReplayBytes(int64_t replay_bytes) {
  if (replay_bytes >= 1) return absl::OkStatus();
  return OutOfRange("replay_bytes", replay_bytes, "at least 1");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Session>> Session::Open(
    const ClientOptions& client, const SessionOptions& options) {
  RETURN_IF_ERROR(CheckReplayBytes(options.replay_bytes));
  v1::OpenSessionRequest request;
  request.set_open_id(RandomRequestId());
  request.set_name(options.name);
  request.set_lease_seconds(absl::ToDoubleSeconds(options.lease));
  request.set_quota_bytes(options.quota_bytes);
  request.mutable_readers()->Assign(options.readers.begin(),
                                    options.readers.end());
  request.set_durable(options.durable);
  ASSIGN_OR_RETURN(Opened opened,
                   Ask(client, "OpenSession", request, absl::InfiniteFuture()));
  const absl::Status followed = Follow(client, absl::InfiniteFuture(), &opened);
  if (!followed.ok()) {
    // Nobody else knows its id, and its name would stay in use.
    opened.wire
        ->Close(opened.answer.session_id(), /*epoch=*/0,
                absl::Now() + kBriefTime)
        .IgnoreError();
    return followed;
  }
  return std::unique_ptr<Session>(
      new Session(std::move(opened.wire), opened.answer, options.replay_bytes));
}

absl::StatusOr<std::unique_ptr<Session>> Session::Resume(
    const ClientOptions& client, const std::string& id, const std::string& name,
    int64_t replay_bytes) {
  RETURN_IF_ERROR(CheckReplayBytes(replay_bytes));
  v1::ResumeSessionRequest request;
  request.set_session_id(id);
  request.set_name(name);
  ASSIGN_OR_RETURN(Opened opened,
                   ResumeAtOne(ReplicasOf(client), client, request));
  return std::unique_ptr<Session>(
      new Session(std::move(opened.wire), opened.answer, replay_bytes));
}

}  // namespace convgrad
