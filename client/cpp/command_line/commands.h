// The tool's commands. Each prints its results and returns an error where it
// couldn't, or where a check failed.
#pragma once

#include "absl/status/status.h"
#include "backends/core/conv_problem.h"
#include "client/cpp/client.h"
#include "client/cpp/command_line/settings.h"

namespace convgrad {

// Runs the problem once, prints, checks and writes what was asked for.
// Errors: the call's; kDataLoss if a check failed.
absl::Status RunOnce(Direction direction, const ConvProblem& problem,
                     const Settings& settings, Client* client);

// Runs the problem again and again and prints the spread.
absl::Status RunBench(const ConvProblem& problem, const Settings& settings,
                      Client* client);

}  // namespace convgrad
