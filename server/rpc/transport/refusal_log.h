// These functions log what any client can cause, with a limit on the lines per
// second.
#pragma once

#include "absl/strings/string_view.h"

namespace convgrad {

// Logs as a warning that the server refused the connection of `peer`, e.g.
// "10.0.0.7:41234". It logs at most ten refusals in a second one by one and
// counts the others, so that refused connections don't fill the log.
// Thread-safe.
void LogRefusal(absl::string_view peer, absl::string_view reason);

// Logs an error of gRPC, with the same limit. gRPC quotes metadata in it, so
// the line has at most 500 bytes of `message`, escaped. Thread-safe.
void LogGrpcError(absl::string_view message);

// Logs as a warning what protobuf says about a message, with the same limits.
// Each message with invalid UTF-8 makes it say something. Thread-safe.
void LogProtobufError(absl::string_view message);

// Logs as a warning that the self-check of `operation` failed, with the same
// limit on the lines. A client may change its regions, or send numbers that
// underflow, so that the checks of correct results fail. Thread-safe.
void LogFailedSelfCheck(absl::string_view operation,
                        absl::string_view implementation);

}  // namespace convgrad
