// Computes the tool's numbers from the server's replies.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/cpp/operation_call.h"

namespace convgrad {

using Stage = std::pair<absl::string_view, double>;

// Returns the stages in the order of a call. "unaccounted" is the rest of the
// server's total. Units: seconds.
std::vector<Stage> StagesOf(const v1::StageTimes& seconds);

// Returns 0 if `seconds` is 0.
double GigaflopsPerSecond(double flops, double seconds);

// Returns the seconds of the call outside the server's total.
double OutsideSeconds(const OperationReply& reply);

// Summary of calls of one operation. Units: seconds.
struct BenchSummary {
  int64_t calls = 0;
  double min = 0, median = 0, p99 = 0;
  double gflops_per_second = 0;  // at the median
  // Medians of the stages, of the server's total and of the time outside it.
  std::vector<Stage> stages;
};

// Requires: at least one reply; doesn't read their results.
BenchSummary Summarize(const std::vector<OperationReply>& replies);

}  // namespace convgrad
