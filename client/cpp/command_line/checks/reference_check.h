// Compares a server's results with those of its reference backend, by the
// criteria of proto/correctness.md, "Single results".
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
  // Number of elements whose bits differ on small integers, for which every sum
  // is exact; -1 if the sums are too long for that.
  int64_t differing = 0;
  // Largest error on independent normal numbers, as a share of the element-wise
  // tolerance.
  double worst = 0;

  bool ok() const { return differing <= 0 && worst <= 1; }
};

struct Comparison {
  ConvOperation operation;
  std::vector<ComparedResult> results;
  // The server's reason why it can't compute this; `results` is empty then.
  std::string refusal;
};

// Runs the problem with all of its gradients on random operands, with the
// settings' backend, layouts and transport, and on the reference.
// Errors: those of calls, except UNIMPLEMENTED, which becomes the comparison's
// refusal.
absl::StatusOr<Comparison> CompareWithReference(Direction direction,
                                                const ConvProblem& problem,
                                                const Settings& settings,
                                                Client* client);

}  // namespace convgrad
