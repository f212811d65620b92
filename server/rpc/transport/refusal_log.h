// `LogRefusal` logs refused connections.
#pragma once

#include "absl/strings/string_view.h"

namespace convgrad {

// Logs as a warning that the connection of `peer`, e.g. "10.0.0.7:41234", was
// refused. It logs at most ten of a second one by one and counts the others, so
// that refused connections don't fill the log. Thread-safe.
void LogRefusal(absl::string_view peer, absl::string_view reason);

}  // namespace convgrad
