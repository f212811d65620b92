// `ReadTextFile` reads a small file that a flag names.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace convgrad {

// Returns the content of the file at `path`. Thread-safe.
// Errors: kInvalidArgument naming `flag` and the file.
absl::StatusOr<std::string> ReadTextFile(absl::string_view flag,
                                         const std::string& path);

}  // namespace convgrad
