#include "server/rpc/transport/pipe_check.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"

namespace convgrad {

absl::Status CheckNoPipe(absl::string_view flag, const std::string& path) {
  std::error_code unknown;  // Reading the file will tell why.
  if (!std::filesystem::is_fifo(path, unknown)) return absl::OkStatus();
  return OutOfRange(flag, absl::StrCat("'", path, "', a pipe"),
                    "a file, because the server reads it again");
}

}  // namespace convgrad
