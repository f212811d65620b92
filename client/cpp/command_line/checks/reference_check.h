// A server's results against those of its reference backend, measured as in
// proto/correctness.md, "Single results".
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/client.h"
#include "client/cpp/command_line/settings/settings.h"

namespace convgrad {

struct ComparedResult {
  ResultRequest request;
  int64_t elements = 0;
  // On small integers, where every sum is exact: elements whose bits differ; -1
  // where sums would be too long for that.
  int64_t differing = 0;
  // On independent normal numbers: the largest error, as a share of what the
  // element-wise criterion allows.
  double worst = 0;

  bool ok() const { return differing <= 0 && worst <= 1; }
};

struct Comparison {
  ConvOperation operation;
  std::vector<ComparedResult> results;
  std::string refusal;  // the server can't compute this; results are empty
};

// Runs the problem with every gradient that it has, on random operands, by the
// settings' backend, layouts and path, and by the reference.
// Errors: those of calls, but UNIMPLEMENTED, which is the comparison's refusal.
absl::StatusOr<Comparison> CompareWithReference(Direction direction,
                                                const ConvProblem& problem,
                                                const Settings& settings,
                                                Client* client);

}  // namespace convgrad
