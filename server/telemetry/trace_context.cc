#include "server/telemetry/trace_context.h"

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"

namespace convgrad {
namespace {

bool IsHex(absl::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == absl::string_view::npos;
}

// An id of zeros is invalid.
bool IsId(absl::string_view text) {
  return IsHex(text) && text.find_first_not_of('0') != absl::string_view::npos;
}

}  // namespace

std::optional<TraceContext> ParseTraceparent(absl::string_view traceparent) {
  // The format is version-trace id-parent id-flags. Later versions may append
  // fields.
  constexpr size_t kSize = 2 + 1 + 32 + 1 + 16 + 1 + 2;
  if (traceparent.size() < kSize) return std::nullopt;
  const absl::string_view version = traceparent.substr(0, 2);
  const absl::string_view trace_id = traceparent.substr(3, 32);
  const absl::string_view parent_id = traceparent.substr(36, 16);
  const absl::string_view flags = traceparent.substr(53, 2);
  const absl::string_view rest = traceparent.substr(kSize);
  const bool known_size =
      rest.empty() || (version != "00" && absl::StartsWith(rest, "-"));
  if (traceparent[2] != '-' || traceparent[35] != '-' ||
      traceparent[52] != '-' || !IsHex(version) || version == "ff" ||
      !IsId(trace_id) || !IsId(parent_id) || !IsHex(flags) || !known_size) {
    return std::nullopt;
  }
  const std::string bits = absl::HexStringToBytes(flags);
  return TraceContext{std::string(trace_id), std::string(parent_id),
                      (bits[0] & 1) != 0};
}

}  // namespace convgrad
