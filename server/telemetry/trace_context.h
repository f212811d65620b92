// `TraceContext` is the position of a call in its caller's trace (W3C trace
// context).
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace convgrad {

// The metadata key of the trace context.
inline constexpr char kTraceparentKey[] = "traceparent";

// Value type.
struct TraceContext {
  std::string trace_id;   // 32 lower-case hex digits.
  std::string parent_id;  // 16 hex digits; the caller's span.
  bool sampled = false;   // The caller keeps its spans.
};

// Parses `traceparent`. Returns nullopt if it isn't well-formed, as the
// standard asks: https://www.w3.org/TR/trace-context/#traceparent-header
std::optional<TraceContext> ParseTraceparent(absl::string_view traceparent);

}  // namespace convgrad
