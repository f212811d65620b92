// What is told of every call that ends.
#pragma once

#include <optional>
#include <string>

#include "grpcpp/server_context.h"
#include "server/rpc/call_services.h"
#include "server/telemetry/tracing.h"

namespace convgrad {

// Returns the trace that a call's client has it in; nullopt if there is none.
std::optional<TraceContext> CallerOf(
    const grpc::CallbackServerContext& context);

// Counts the call, makes its spans where they are asked for, and writes its
// line to the log: "call method=... client=... trace=... code=... seconds=...
// cause=..." at level debug, at level error if something failed here. Nothing
// of a request but what its error says. Thread-safe.
void TellEnd(const CallServices& services, const EndedCall& call,
             const std::string& client);

}  // namespace convgrad
