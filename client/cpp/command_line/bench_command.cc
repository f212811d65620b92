#include <utility>
#include <vector>

#include "backends/core/status.h"
#include "client/cpp/command_line/commands.h"
#include "client/cpp/command_line/operands.h"
#include "client/cpp/command_line/output.h"

namespace convgrad {

absl::Status RunBench(const ConvProblem& problem, const Settings& settings,
                      Client* client) {
  ASSIGN_OR_RETURN(const ConvOperation operation,
                   MakeOperation(settings.bench_direction, problem, settings));
  ASSIGN_OR_RETURN(const LocalTensors tensors,
                   MakeOperands(operation, settings));
  std::vector<OperationReply> replies;
  for (int i = -settings.warmup; i < settings.repeat; ++i) {
    ASSIGN_OR_RETURN(OperationReply reply,
                     client->Run(CallFor(operation, tensors, settings)));
    if (i < 0) continue;
    reply.results.clear();
    replies.push_back(std::move(reply));
  }
  PrintBench(CallFor(operation, tensors, settings).operation, replies);
  return absl::OkStatus();
}

}  // namespace convgrad
