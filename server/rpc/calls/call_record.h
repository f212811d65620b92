// A call's way into the server and out of it, whatever the call is: let in,
// counted, traced, logged.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "grpcpp/server_context.h"
#include "server/rpc/calls/call_services.h"

namespace convgrad {

// Owned by one thread at a time.
class CallRecord {
 public:
  // Counts a call of `method`, the short name that is counted, as started.
  // Both references outlive this.
  CallRecord(const CallServices& services, grpc::ServerContextBase* context,
             absl::string_view method);

  // Lets the call in, if the server takes calls and this client may do what
  // takes `role`.
  // Errors: kUnavailable, reason DRAINING; those of Gate::Enter.
  absl::Status Enter(Role role);

  // Counts the call's end, makes its spans where they are asked for, leaves the
  // gate and tells gRPC the trailers of `status`. The log gets a line "call
  // method=... client=... trace=... code=... seconds=... cause=...", at level
  // debug, at level error if something failed here: nothing of a request but
  // what its error says. To be called once. `operation` may be null.
  void Close(const absl::Status& status, const OpSample* operation);

  absl::Time arrival() const { return arrival_; }
  Visit& visit() { return visit_; }
  const Visit& visit() const { return visit_; }

 private:
  const CallServices& services_;
  grpc::ServerContextBase* const context_;
  const absl::string_view method_;
  const absl::Time arrival_;
  Visit visit_;
};

}  // namespace convgrad
