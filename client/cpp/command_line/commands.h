// The tool's commands. Each hands its results to the session's output and
// returns an error where it couldn't, or where a check failed.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "backends/core/convolution/conv_problem.h"
#include "client/cpp/client.h"
#include "client/cpp/command_line/output.h"
#include "client/cpp/command_line/settings/settings.h"

namespace convgrad {

// What every command works with.
struct CommandContext {
  const Settings& settings;
  Client* client;
  Output* output;
};

// Runs the problem once, checks and writes what was asked for.
// Errors: the call's; kDataLoss if a check failed.
absl::Status RunOnce(Direction direction, const ConvProblem& problem,
                     const CommandContext& context);

// Runs the problem again and again and tells the spread.
absl::Status RunBench(const ConvProblem& problem,
                      const CommandContext& context);

// Compares the server with its reference backend, forward and backward, on each
// of `problems`, or on a list of its own if there are none.
// Errors: a call's; kDataLoss if a result is wrong.
absl::Status RunCheck(const std::vector<std::string>& problems,
                      const CommandContext& context);

// Shows what the server does, from its metrics, again and again. Needs no
// client.
// Errors: kUnavailable if nobody answers there.
absl::Status RunTop(const CommandContext& context);

}  // namespace convgrad
