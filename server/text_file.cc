#include "server/text_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

absl::Status CantOpen(absl::string_view flag, const std::string& path,
                      absl::string_view expected) {
  return InvalidField(Reason::kOutOfRange, absl::StrCat("--", flag),
                      absl::StrCat("'", path, "' (", std::strerror(errno), ")"),
                      expected);
}

}  // namespace

absl::StatusOr<std::string> ReadTextFile(absl::string_view flag,
                                         const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  file.peek();  // a directory opens, but doesn't read
  std::ostringstream text;
  if (file.good()) text << file.rdbuf();
  if (file.bad() || !file.is_open())
    return CantOpen(flag, path, "a file that can be read");
  return text.str();
}

absl::Status WriteTextFile(absl::string_view flag, const std::string& path,
                           absl::string_view text) {
  const std::string part = path + ".part";
  errno = 0;
  std::ofstream file(part, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file || std::rename(part.c_str(), path.c_str()) != 0) {
    return CantOpen(flag, path, "a file that can be written");
  }
  return absl::OkStatus();
}

}  // namespace convgrad
