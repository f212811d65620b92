// Numbers that the tool makes of the server's replies.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/cpp/client.h"

namespace convgrad {

using Stage = std::pair<absl::string_view, double>;

// Returns the stages in the order of a call's life, and what the server's total
// holds beside them as "unaccounted". Units: seconds.
std::vector<Stage> StagesOf(const v1::StageTimes& seconds);

// Returns 0 for no time.
double GigaflopsPerSecond(double flops, double seconds);

// Returns the seconds of the call that the server's total doesn't hold.
double OutsideSeconds(const OperationReply& reply);

// What calls of one operation had in common. Units: seconds.
struct BenchSummary {
  int64_t calls = 0;
  double min = 0, median = 0, p99 = 0;
  double gflops_per_second = 0;  // at the median
  // Medians of the stages, of the server's total and of what is outside it.
  std::vector<Stage> stages;
};

// Requires: at least one reply; their results may be gone.
BenchSummary Summarize(const std::vector<OperationReply>& replies);

}  // namespace convgrad
