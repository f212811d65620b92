#include "server/rpc/call_log.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "spdlog/spdlog.h"

namespace convgrad {

void LogCall(absl::string_view method, const std::string& client,
             const absl::Status& status, absl::Duration elapsed) {
  const auto level = status.code() == absl::StatusCode::kInternal
                         ? spdlog::level::err
                         : spdlog::level::debug;
  if (!spdlog::should_log(level)) return;
  std::string line = absl::StrCat(
      "call method=", method, " client=\"", absl::CHexEscape(client),
      "\" code=", absl::StatusCodeToString(status.code()),
      " seconds=", absl::ToDoubleSeconds(elapsed));
  // Parts of a request may be in there, line ends too.
  if (!status.ok()) {
    absl::StrAppend(&line, " cause=\"", absl::CHexEscape(status.message()),
                    "\"");
  }
  spdlog::log(level, line);
}

}  // namespace convgrad
