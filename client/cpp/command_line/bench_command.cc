#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "backends/core/status.h"
#include "client/cpp/command_line/checks/result_check.h"
#include "client/cpp/command_line/commands.h"
#include "client/cpp/command_line/files/operands.h"
#include "client/cpp/command_line/measures.h"
#include "client/cpp/command_line/progress.h"
#include "client/cpp/command_line/results.h"

namespace convgrad {

absl::Status RunBench(const ConvProblem& problem,
                      const CommandContext& context) {
  const Settings& settings = context.settings;
  std::vector<OperationReply> replies;
  ASSIGN_OR_RETURN(const ConvOperation operation,
                   MakeOperation(settings.bench_direction, problem, settings));
  std::optional<Progress> progress;
  progress.emplace("bench", settings.warmup + settings.repeat);
  ASSIGN_OR_RETURN(const LocalTensors tensors,
                   MakeOperands(operation, settings));
  ASSIGN_OR_RETURN(PlacedCall placed,
                   Place(CallFor(operation, tensors, settings), settings));
  for (int64_t i = -settings.warmup; i < settings.repeat; ++i) {
    placed.call.deadline = absl::Now() + settings.timeout;
    ASSIGN_OR_RETURN(OperationReply reply,
                     Send(placed.call, settings, context.client));
    progress->Advance();
    if (i < 0) continue;
    reply.results.clear();
    replies.push_back(std::move(reply));
  }
  progress.reset();
  const auto summary = SummaryOf(placed.call.operation, replies);
  context.output->Print(summary, SummaryText(summary));
  return Verdict(std::all_of(replies.begin(), replies.end(), &PassedSelfCheck));
}

}  // namespace convgrad
