#include "server/rpc/snapshot_calls.h"

#include <memory>
#include <string>
#include <utility>

#include "backends/core/status.h"
#include "convgrad/v1/session.pb.h"
#include "server/rpc/calls/call_session.h"
#include "server/rpc/capabilities.h"

namespace convgrad {

absl::Status SnapshotCall::Check(const std::string& name, bool may_lack) {
  if (!session().settings().durable) {
    return MakeError(absl::StatusCode::kFailedPrecondition,
                     {Reason::kUnsupported, "session", "one that isn't durable",
                      "a durable one"});
  }
  if (may_lack && name.empty()) return absl::OkStatus();
  return CheckSnapshotName(name, "name");
}

absl::Status SaveStateCall::OnMessage() {
  ASSIGN_OR_RETURN(const auto request, Parse<v1::SaveStateRequest>());
  RETURN_IF_ERROR(Check(request.name(), /*may_lack=*/true));
  AwaitSession(
      [this, &request](const SessionOutcome& saved) {
        SessionArchive& archive = *services().sessions->archive();
        if (request.name().empty()) {
          archive.Save(session().session(), saved);
        } else {
          archive.Keep(session().session(), request.name(), saved);
        }
      },
      [this](const absl::Status& saved) {
        v1::SaveStateResponse response;
        response.set_number(session().durable_number().value_or(0));
        Finish(saved, response);
      });
  return absl::OkStatus();
}

absl::Status RestoreStateCall::OnMessage() {
  ASSIGN_OR_RETURN(const auto request, Parse<v1::RestoreStateRequest>());
  RETURN_IF_ERROR(Check(request.name(), /*may_lack=*/false));
  // Not a member, because the disk may answer after the end of the call.
  const auto snapshot = std::make_shared<std::shared_ptr<const KeptState>>();
  AwaitSession(
      [&](SessionOutcome ready) {
        services().sessions->archive()->LoadNamed(
            session().session(), request.name(),
            [snapshot, ready = std::move(ready)](
                absl::StatusOr<std::shared_ptr<const KeptState>> loaded) {
              const absl::Status status = loaded.status();
              if (status.ok()) *snapshot = *std::move(loaded);
              ready(status);
            });
      },
      [this, snapshot](const absl::Status& loaded) {
        if (!loaded.ok()) return End(loaded);
        Restore(**snapshot);
      });
  return absl::OkStatus();
}

void RestoreStateCall::Restore(const KeptState& snapshot) {
  *session().writes() = WritesToRestore(session().state(), snapshot);
  v1::RestoreStateResponse response;
  response.set_number(snapshot.number);
  if (snapshot.trainer_state != nullptr) {
    response.set_trainer_state(*snapshot.trainer_state);
  }
  if (snapshot.computed_by != nullptr) {
    AddDifferences(*snapshot.computed_by, FactsOf(services().capabilities()),
                   response.mutable_differences());
  }
  ReplySize reply;
  reply.head_bytes += static_cast<int64_t>(response.ByteSizeLong());
  Finish(session().Promise(reply), response);
}

absl::Status DropStateCall::OnMessage() {
  ASSIGN_OR_RETURN(const auto request, Parse<v1::DropStateRequest>());
  RETURN_IF_ERROR(Check(request.name(), /*may_lack=*/false));
  AwaitSession(
      [this, &request](SessionOutcome dropped) {
        services().sessions->archive()->Drop(
            session().session(), request.name(), std::move(dropped));
      },
      [this](const absl::Status& dropped) {
        Finish(dropped, v1::DropStateResponse());
      });
  return absl::OkStatus();
}

}  // namespace convgrad
