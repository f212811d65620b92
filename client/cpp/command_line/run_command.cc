// Implements the commands backward and forward: one call and its checks.
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "backends/core/status.h"
#include "client/cpp/command_line/checks/result_check.h"
#include "client/cpp/command_line/commands.h"
#include "client/cpp/command_line/files/operands.h"
#include "client/cpp/command_line/files/tensor_files.h"
#include "client/cpp/command_line/progress.h"
#include "client/cpp/command_line/results.h"

namespace convgrad {

absl::Status RunOnce(Direction direction, const ConvProblem& problem,
                     const CommandContext& context) {
  const Settings& settings = context.settings;
  ASSIGN_OR_RETURN(const ConvOperation operation,
                   MakeOperation(direction, problem, settings));
  std::optional<Progress> progress;
  progress.emplace(std::string(NameOf(direction)), 1);
  ASSIGN_OR_RETURN(const LocalTensors tensors,
                   MakeOperands(operation, settings));
  ASSIGN_OR_RETURN(const PlacedCall placed,
                   Place(CallFor(operation, tensors, settings), settings));
  ASSIGN_OR_RETURN(const OperationReply reply,
                   Send(placed.call, settings, context.client));
  progress.reset();
  context.output->Print(ReplyJson(placed.call.operation, reply),
                        ReplyText(placed.call.operation, reply));
  if (!settings.out.empty()) {
    ASSIGN_OR_RETURN(const std::vector<std::string> paths,
                     WriteResults(reply, settings.out));
    context.output->Print(
        {{"wrote", paths}},
        absl::StrCat("  wrote        ",
                     absl::StrJoin(paths, "\n  wrote        "), "\n"));
  }
  const bool passed = PassedSelfCheck(reply);
  if (!settings.check) return Verdict(passed);
  progress.emplace("checking", 1);
  ASSIGN_OR_RETURN(
      const ResultCheck check,
      CheckResults({operation, tensors, reply}, settings, context.client));
  progress.reset();
  context.output->Print(CheckJson(check), CheckText(check));
  return Verdict(passed && check.ok());
}

}  // namespace convgrad
