// What the log says of connections that become none.
#pragma once

#include "absl/strings/string_view.h"

namespace convgrad {

// Logs, as a warning, that the connection of `peer`, e.g. "10.0.0.7:41234", was
// refused. Ten of a second at most are told one by one, the others counted:
// refused connections must not fill the log. Thread-safe.
void LogRefusal(absl::string_view peer, absl::string_view reason);

}  // namespace convgrad
