#include "server/flags/text_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"

namespace convgrad {
absl::StatusOr<std::string> ReadTextFile(absl::string_view flag,
                                         const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  file.peek();  // A directory opens, but doesn't read.
  std::ostringstream text;
  if (file.good()) text << file.rdbuf();
  if (file.bad() || !file.is_open()) {
    return OutOfRange(absl::StrCat("--", flag),
                      absl::StrCat("'", path, "' (", std::strerror(errno), ")"),
                      "a file that can be read");
  }
  return text.str();
}

}  // namespace convgrad
