// Implements how a session's snapshots on the server are kept, restored and
// dropped.
#include <string>

#include "backends/core/status.h"
#include "client/cpp/call_checks.h"
#include "client/cpp/sessions/change_sender.h"
#include "client/cpp/sessions/session.h"
#include "client/cpp/sessions/session_wire.h"
#include "proto/codec/payload_message.h"

namespace convgrad {
absl::StatusOr<int64_t> Session::SaveState(const std::string& name,
                                           absl::Time deadline) {
  v1::SaveStateRequest request;
  request.set_name(name);
  v1::SaveStateResponse response;
  RETURN_IF_ERROR(Call(SessionMethod("SaveState"), request, Access::kRead,
                       deadline, &response));
  return response.number();
}

absl::StatusOr<v1::RestoreStateResponse> Session::RestoreState(
    const std::string& name, absl::Time deadline) {
  v1::RestoreStateRequest request;
  request.set_name(name);
  v1::RestoreStateResponse response;
  RETURN_IF_ERROR(Call(SessionMethod("RestoreState"), request, Access::kChange,
                       deadline, &response));
  return response;
}

absl::Status Session::DropState(const std::string& name, absl::Time deadline) {
  v1::DropStateRequest request;
  request.set_name(name);
  return Send(SessionMethod("DropState"), request, {}, Access::kRead, deadline)
      .status();
}

}  // namespace convgrad
