// `CheckNoPipe` checks a file that the server reads again and again.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace convgrad {

// Thread-safe. Errors: kInvalidArgument naming `flag` if `path` is a pipe,
// because a second read of a pipe blocks or finds nothing.
absl::Status CheckNoPipe(absl::string_view flag, const std::string& path);

}  // namespace convgrad
