// `Output` prints the tool's results, as text for people or as JSON for
// programs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "backends/core/convolution/conv_operation.h"
#include "client/cpp/client.h"
#include "client/cpp/command_line/activity/server_activity.h"
#include "client/cpp/command_line/checks/reference_check.h"
#include "client/cpp/command_line/checks/result_check.h"
#include "client/cpp/command_line/program_table.h"

namespace convgrad {

// Owned by one thread.
class Output {
 public:
  virtual ~Output() = default;

  // Prints time, rates, the server's stages and the implementation.
  virtual void Reply(const ConvOperation& operation,
                     const OperationReply& reply) = 0;
  virtual void Wrote(const std::vector<std::string>& paths) = 0;
  virtual void Check(const ResultCheck& check) = 0;
  // Prints the distribution of calls and the medians of their stages. Requires:
  // at least one reply; doesn't read their results.
  virtual void Bench(const ConvOperation& operation,
                     const std::vector<OperationReply>& replies) = 0;
  virtual void Capabilities(const v1::GetCapabilitiesResponse& response) = 0;
  virtual void Sessions(const v1::ListSessionsResponse& response) = 0;
  virtual void Program(const ProgramTable& table) = 0;
  virtual void Comparisons(const std::vector<Comparison>& comparisons) = 0;
  virtual void Activity(const ServerActivity& activity) = 0;
  // Prints why the command failed, on one line of stderr. No other result may
  // follow.
  virtual void Error(const absl::Status& status) = 0;
  // Must be called once, at the end.
  virtual void Finish() = 0;
};

std::unique_ptr<Output> MakeTextOutput();

// Returns an output that prints one JSON object in Finish, and one line for
// each activity. Times are in seconds; NaN and infinity become null.
std::unique_ptr<Output> MakeJsonOutput();

// Prints "convgrad: <code>: <message>" on one line of stderr.
void PrintError(const absl::Status& status);

}  // namespace convgrad
