#include "server/rpc/snapshot_calls.h"

#include <memory>
#include <string>
#include <utility>

#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "convgrad/v1/session.pb.h"
#include "server/rpc/calls/call_session.h"
#include "server/rpc/capabilities.h"

namespace convgrad {
namespace {

// Checks that the session is durable, and that `name` is the name of a snapshot
// or, if the call `may_lack` one, empty.
absl::Status Check(PlainCall* call, const std::string& name, bool may_lack) {
  if (!call->session().settings().durable) {
    return FailedPrecondition(Reason::kUnsupported, "session",
                              "one that isn't durable", "a durable one");
  }
  if (may_lack && name.empty()) return absl::OkStatus();
  return CheckName(name, "name", kMaxSnapshotNameBytes);
}

// Commits the content of `snapshot`.
void Restore(PlainCall* call, const KeptState& snapshot) {
  CallSession& session = call->session();
  *session.writes() = WritesToRestore(session.state(), snapshot);
  v1::RestoreStateResponse response;
  response.set_number(snapshot.number);
  if (snapshot.trainer_state != nullptr) {
    response.set_trainer_state(*snapshot.trainer_state);
  }
  if (snapshot.computed_by != nullptr) {
    AddDifferences(*snapshot.computed_by,
                   FactsOf(call->services().capabilities()),
                   response.mutable_differences());
  }
  ReplySize reply;
  reply.head_bytes += static_cast<int64_t>(response.ByteSizeLong());
  call->Finish(session.Promise(reply), response);
}

}  // namespace

absl::Status HandleSaveState(PlainCall* call) {
  ASSIGN_OR_RETURN(const auto request, call->Parse<v1::SaveStateRequest>());
  RETURN_IF_ERROR(Check(call, request.name(), /*may_lack=*/true));
  call->AwaitSession(
      [call, &request](const PlainCall::SessionOutcome& saved) {
        SessionArchive& archive = *call->services().sessions->archive();
        if (request.name().empty()) {
          archive.Save(call->session().session(), saved);
        } else {
          archive.Keep(call->session().session(), request.name(), saved);
        }
      },
      [call](const absl::Status& saved) {
        v1::SaveStateResponse response;
        response.set_number(call->session().session()->durable_number());
        call->Finish(saved, response);
      });
  return absl::OkStatus();
}

absl::Status HandleRestoreState(PlainCall* call) {
  ASSIGN_OR_RETURN(const auto request, call->Parse<v1::RestoreStateRequest>());
  RETURN_IF_ERROR(Check(call, request.name(), /*may_lack=*/false));
  // Shared, because the disk may answer after the end of the call.
  const auto snapshot = std::make_shared<std::shared_ptr<const KeptState>>();
  call->AwaitSession(
      [&](PlainCall::SessionOutcome ready) {
        call->services().sessions->archive()->LoadNamed(
            call->session().session(), request.name(),
            [snapshot, ready = std::move(ready)](
                absl::StatusOr<std::shared_ptr<const KeptState>> loaded) {
              const absl::Status status = loaded.status();
              if (status.ok()) *snapshot = *std::move(loaded);
              ready(status);
            });
      },
      [call, snapshot](const absl::Status& loaded) {
        if (!loaded.ok()) return call->End(loaded);
        Restore(call, **snapshot);
      });
  return absl::OkStatus();
}

absl::Status HandleDropState(PlainCall* call) {
  ASSIGN_OR_RETURN(const auto request, call->Parse<v1::DropStateRequest>());
  RETURN_IF_ERROR(Check(call, request.name(), /*may_lack=*/false));
  call->AwaitSession(
      [call, &request](PlainCall::SessionOutcome dropped) {
        call->services().sessions->archive()->Drop(
            call->session().session(), request.name(), std::move(dropped));
      },
      [call](const absl::Status& dropped) {
        call->Finish(dropped, v1::DropStateResponse());
      });
  return absl::OkStatus();
}

}  // namespace convgrad
