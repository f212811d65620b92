// The log's line of each call.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace convgrad {

// Writes "call method=... client=... code=... seconds=... cause=..." at level
// debug, at level error if something failed here. Nothing of a request but what
// its error says. Thread-safe.
void LogCall(absl::string_view method, const std::string& client,
             const absl::Status& status, absl::Duration elapsed);

}  // namespace convgrad
