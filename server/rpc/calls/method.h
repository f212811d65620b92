// A `Method` is the row of one RPC: the role, the session and the bytes that
// the server allows, and the class that handles it.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "grpcpp/generic/async_generic_service.h"
#include "server/rpc/transport/token_table.h"

namespace convgrad {

class Call;
struct CallServices;

// Says what a method's calls may do in a session. The metadata of a call says
// whether it belongs to a session and whether it changes it.
enum class SessionRule {
  kNoChange,         // Needs no session; a change is refused.
  kMayChange,        // Needs no session; may be a change.
  kReads,            // Needs a session; a change is refused.
  kMayReadOrChange,  // Needs a session; may be a change.
  kChanges,          // Needs a session and must be a change of it.
};

// One row of the server's table of RPCs (methods.h). Immutable.
struct Method {
  absl::string_view service;  // E.g. "convgrad.v1.ConvGrad".
  absl::string_view name;     // Also the label of the method's metrics.
  // The role that a caller needs. A change needs at least kTrain.
  ClientRole role;
  SessionRule session;
  // The operation's name in metrics. "": metrics of operations don't count it.
  absl::string_view operation;
  // The most bytes of a request without tensors. 0: the request carries
  // tensors, whose payloads may have --max_message_bytes.
  int64_t max_bytes;
  // Returns a new call, which deletes itself.
  Call* (*make)(const Method& method, const CallServices& services,
                grpc::GenericCallbackServerContext* context);
  // The label of its metrics: unary, client_stream, server_stream or
  // bidi_stream.
  absl::string_view type = "unary";

  bool needs_session() const { return session >= SessionRule::kReads; }
  bool may_change() const {
    return session != SessionRule::kNoChange && session != SessionRule::kReads;
  }
};

}  // namespace convgrad
