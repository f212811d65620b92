// `RecordEnd` reports the end of a call to metrics, log, trace and gRPC.
//
// Thread-safe: a free function without state.
#pragma once

#include "absl/strings/string_view.h"
#include "grpcpp/server_context.h"
#include "server/rpc/calls/call_services.h"

namespace convgrad {

// Counts the end of `call`, makes its spans if there is a tracer, and gives
// gRPC the trailers of its status. Logs a line "call method=... client=...
// trace=... code=... seconds=... cause=...", at level debug, or error if the
// server failed. The line quotes nothing of a request but its error.
void RecordEnd(const CallServices& services, absl::string_view client,
               grpc::ServerContextBase* context, const EndedCall& call);

}  // namespace convgrad
