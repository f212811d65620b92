// Computes the tool's numbers from the server's replies.
#pragma once

#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/cpp/operation_call.h"
#include "nlohmann/json_fwd.hpp"

namespace convgrad {

using Stage = std::pair<absl::string_view, double>;

// Returns the stages in the order of a call. "unaccounted" is the rest of the
// server's total, which is negative if stages overlap, as those of a stream do.
// Units: seconds.
std::vector<Stage> StagesOf(const v1::StageTimes& seconds);

// Returns 0 if `seconds` is 0.
double GigaflopsPerSecond(double flops, double seconds);

// Returns the seconds of the call outside the server's total.
double OutsideSeconds(const OperationReply& reply);

// Returns the bytes that the call moved, as documents of --json have them.
nlohmann::ordered_json BytesOf(const OperationReply& reply);

// Returns the document that `bench --json` prints: the distribution of the
// calls' times, GFLOP/s at their median, and the medians of the stages, of the
// server's total and of the time outside it.
// Requires: at least one reply; doesn't read their results.
nlohmann::ordered_json SummaryOf(const ConvOperation& operation,
                                 const std::vector<OperationReply>& replies);

}  // namespace convgrad
