// Small files that flags name.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace convgrad {

// Errors: kInvalidArgument naming `flag` and the file.
absl::StatusOr<std::string> ReadTextFile(absl::string_view flag,
                                         const std::string& path);
// Writes beside the file, then takes its place: who reads it meanwhile sees the
// old text or the new one.
absl::Status WriteTextFile(absl::string_view flag, const std::string& path,
                           absl::string_view text);

}  // namespace convgrad
