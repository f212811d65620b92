// Runs the command line tool `convgrad`.
#include <malloc.h>

#include <iostream>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "client/cpp/client.h"
#include "client/cpp/command_line/commands.h"
#include "client/cpp/command_line/output.h"
#include "client/cpp/command_line/program_table.h"
#include "client/cpp/command_line/results.h"
#include "client/cpp/command_line/settings/command_line.h"
#include "client/cpp/command_line/settings/completions.h"

namespace convgrad {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

absl::Status PrintCompletions(const std::string& shell) {
  if (shell != "bash" && shell != "zsh") {
    return OutOfRange("shell", absl::StrCat("\"", shell, "\""), "bash or zsh");
  }
  std::cout << (shell == "bash" ? BashCompletion() : ZshCompletion());
  return absl::OkStatus();
}

absl::Status PrintProgram(const Settings& settings, Output* output) {
  ASSIGN_OR_RETURN(const auto table, ReadProgramTable(settings.arguments[0],
                                                      settings.program_inputs));
  output->Print(table, ProgramText(table));
  return absl::OkStatus();
}

absl::Status RunCapabilities(const CommandContext& context) {
  ASSIGN_OR_RETURN(
      const v1::GetCapabilitiesResponse response,
      context.client->Capabilities(absl::Now() + context.settings.timeout));
  context.output->Print(MessageJson(response), CapabilitiesText(response));
  return absl::OkStatus();
}

absl::Status RunSessions(const CommandContext& context) {
  const Settings& settings = context.settings;
  if (!settings.close.empty()) {
    RETURN_IF_ERROR(context.client->CloseSession(
        settings.close, absl::Now() + settings.timeout));
  }
  ASSIGN_OR_RETURN(const v1::ListSessionsResponse response,
                   context.client->Sessions(settings.everybody,
                                            absl::Now() + settings.timeout));
  context.output->Print(MessageJson(response), SessionsText(response));
  return absl::OkStatus();
}

absl::Status RunCommand(const Settings& settings, Output* output) {
  const std::string& command = settings.command;
  if (command == "completions") return PrintCompletions(settings.arguments[0]);
  if (command == "program") return PrintProgram(settings, output);
  ASSIGN_OR_RETURN(const std::unique_ptr<Client> client,
                   Client::Connect(settings.client));
  const CommandContext context{settings, client.get(), output};
  if (command == "top") return RunTop(context);
  if (command == "check") return RunCheck(settings.arguments, context);
  if (command == "sessions") return RunSessions(context);
  if (command == "capabilities") return RunCapabilities(context);
  ASSIGN_OR_RETURN(const ConvProblem problem, Parse(settings.arguments[0]));
  if (command == "bench") return RunBench(problem, context);
  return RunOnce(
      command == "forward" ? Direction::kForward : Direction::kBackward,
      problem, context);
}

// Keeps large buffers in the heap, because page faults of a fresh mapping for
// every message cost more than copying its bytes.
void KeepLargeBuffers() {
  constexpr int kThreshold = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, kThreshold);
  mallopt(M_TRIM_THRESHOLD, kThreshold);
}

// Returns whether all output is written, and prints an error if it isn't.
bool WasPrinted() {
  if (std::cout.flush()) return true;
  PrintError(absl::InternalError("stdout can't be written"));
  return false;
}

int Main(const std::vector<std::string>& arguments) {
  KeepLargeBuffers();
  const absl::StatusOr<CommandLine> line = ReadCommandLine(arguments);
  if (line.ok() && !line->answer.empty()) {
    std::cout << line->answer;
    return WasPrinted() ? 0 : kExitFailed;
  }
  // Print errors of the command line as JSON, too.
  Output output(/*is_json=*/absl::c_linear_search(arguments, "--json"));
  const absl::Status status =
      line.ok() ? RunCommand(line->settings, &output) : line.status();
  if (!status.ok()) output.Error(status);
  output.Finish();
  if (!WasPrinted()) return kExitFailed;
  if (status.ok()) return 0;
  return status.code() == absl::StatusCode::kInvalidArgument ? kExitUsage
                                                             : kExitFailed;
}

}  // namespace
}  // namespace convgrad

int main(int argc, char** argv) try {
  return convgrad::Main({argv + 1, argv + argc});
} catch (const std::bad_alloc&) {
  std::cerr << "convgrad: not enough memory for these tensors\n";
  return convgrad::kExitFailed;
}
