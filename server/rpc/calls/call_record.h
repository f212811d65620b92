// `CallRecord` lets a call into the server and reports its end to metrics, log,
// trace and gRPC.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "grpcpp/server_context.h"
#include "server/rpc/calls/call_services.h"

namespace convgrad {

// `CallRecord` may be used by one thread at a time.
class CallRecord {
 public:
  // Counts a call of `method` as started. `method` is its label in metrics.
  // `services` and `context` outlive this.
  CallRecord(const CallServices& services, grpc::ServerContextBase* context,
             absl::string_view method);

  // Admits the call if the server takes calls and the client has `role`.
  // Errors: kUnavailable, reason DRAINING; those of Gate::Enter.
  absl::Status Enter(Role role);

  // Counts the call's end, makes its spans if there is a tracer, frees the
  // permit and gives gRPC the trailers of `status`. Logs a line "call
  // method=... client=... trace=... code=... seconds=... cause=...", at level
  // debug, or error if the server failed. The line quotes nothing of a request
  // but its error. Call it once. `operation` may be null.
  void Close(const absl::Status& status, const OpSample* operation);

  absl::Time arrival() const { return arrival_; }
  CallPermit& permit() { return permit_; }
  const CallPermit& permit() const { return permit_; }

 private:
  const CallServices& services_;
  grpc::ServerContextBase* const context_;
  const absl::string_view method_;
  const absl::Time arrival_;
  CallPermit permit_;
};

}  // namespace convgrad
