#include "client/cpp/command_line/output.h"

#include <unistd.h>

#include <iostream>

#include "absl/strings/str_replace.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

using Json = nlohmann::ordered_json;

// Replaces bytes that aren't UTF-8; paths and errors may contain some. NaN and
// infinity become null.
void PrintJson(const Json& json, int indent) {
  std::cout << json.dump(indent, ' ', false, Json::error_handler_t::replace)
            << std::endl;
}

}  // namespace

void Output::Print(const Json& document, const std::string& text) {
  if (is_json_) {
    document_.update(document);
  } else {
    std::cout << text;
  }
}

void Output::PrintNext(const Json& document, const std::string& text) const {
  if (is_json_) return PrintJson(document, -1);
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  if (terminal) std::cout << "\x1b[H\x1b[2J";  // cursor home, clear screen
  std::cout << text;
  if (!terminal) std::cout << "\n";
  std::cout << std::flush;
}

void Output::Error(const absl::Status& status) {
  PrintError(status);
  Json error = {{"code", absl::StatusCodeToString(status.code())},
                {"message", status.message()}};
  if (const auto detail = DetailOf(status)) {
    error["reason"] = ReasonName(detail->reason);
    error["field"] = detail->field;
    error["found"] = detail->found;
    error["expected"] = detail->expected;
  }
  document_["error"] = error;
}

void Output::Finish() const {
  if (is_json_ && !document_.empty()) PrintJson(document_, 2);
}

void PrintError(const absl::Status& status) {
  std::cerr << "convgrad: " << absl::StatusCodeToString(status.code()) << ": "
            << absl::StrReplaceAll(status.message(), {{"\n", " "}}) << "\n";
}

}  // namespace convgrad
