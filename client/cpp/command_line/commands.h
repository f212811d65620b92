// Runs the tool's commands. Each command passes its results to the context's
// output. It returns an error if it failed or if a check failed.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "backends/core/convolution/conv_problem.h"
#include "client/cpp/client.h"
#include "client/cpp/command_line/output.h"
#include "client/cpp/command_line/settings/settings.h"

namespace convgrad {

// The inputs and the output of every command.
struct CommandContext {
  const Settings& settings;
  Client* client;
  Output* output;
};

// Runs the problem once, and checks and writes the results as the settings ask.
// Errors: the call's; kDataLoss if a check failed.
absl::Status RunOnce(Direction direction, const ConvProblem& problem,
                     const CommandContext& context);

// Runs the problem repeatedly and reports the distribution of times.
// Errors: a call's; kDataLoss if a self-check failed.
absl::Status RunBench(const ConvProblem& problem,
                      const CommandContext& context);

// Compares the server with its reference backend, forward and backward, on each
// of `problems`, or on a built-in list if `problems` is empty.
// Errors: a call's; kDataLoss if a result is wrong; kUnimplemented if the
// server computes none of them.
absl::Status RunCheck(const std::vector<std::string>& problems,
                      const CommandContext& context);

// Shows the server's activity periodically, from its metrics. Needs no client.
// Errors: kUnavailable if no server answers.
absl::Status RunTop(const CommandContext& context);

}  // namespace convgrad
