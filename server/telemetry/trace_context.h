// The place of a call in its caller's trace, as W3C's trace context has it.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace convgrad {

// The metadata key that it comes in.
inline constexpr char kTraceparentKey[] = "traceparent";

// Value type.
struct TraceContext {
  std::string trace_id;   // 32 lower-case hex digits
  std::string parent_id;  // 16: of the caller's span
  bool sampled = false;   // the caller keeps its spans
};

// Returns what `traceparent` says; nullopt if it isn't one, which by the
// standard counts as none:
// https://www.w3.org/TR/trace-context/#traceparent-header
std::optional<TraceContext> ParseTraceparent(absl::string_view traceparent);

}  // namespace convgrad
