// convgrad: one layer's gradients from the command line.
#include <malloc.h>

#include <iostream>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "backends/core/status.h"
#include "client/cpp/client.h"
#include "client/cpp/command_line/commands.h"
#include "client/cpp/command_line/output.h"
#include "client/cpp/command_line/program_table.h"
#include "client/cpp/command_line/progress.h"
#include "client/cpp/command_line/settings/settings.h"
#include "client/cpp/command_line/settings/usage.h"

namespace convgrad {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

absl::Status UsageError(const std::string& message) {
  return absl::InvalidArgumentError(
      absl::StrCat(message, "; convgrad help lists what there is"));
}

// Returns what a command with one argument lacks without it.
absl::string_view NeedOf(Arguments arguments) {
  switch (arguments) {
    case Arguments::kShell:
      return " needs bash or zsh";
    case Arguments::kFile:
      return " needs a FILE";
    default:
      return " needs a PROBLEM";
  }
}

// Returns the command of that name if `arguments`, which follow it, are what it
// takes.
absl::StatusOr<Command> FindCommand(const std::string& name,
                                    const std::vector<std::string>& arguments) {
  for (const Command& command : AllCommands()) {
    if (command.name != name) continue;
    const bool takes_one = command.arguments == Arguments::kProblem ||
                           command.arguments == Arguments::kFile ||
                           command.arguments == Arguments::kShell;
    if (takes_one && arguments.empty()) {
      return UsageError(absl::StrCat(name, NeedOf(command.arguments)));
    }
    const size_t most = takes_one ? 1 : 0;
    if (command.arguments != Arguments::kProblems && arguments.size() > most) {
      return UsageError(
          absl::StrCat("unexpected argument \"", arguments[most], "\""));
    }
    return command;
  }
  return UsageError(absl::StrCat("unknown command \"", name, "\""));
}

absl::Status PrintCompletions(const std::string& shell) {
  if (shell != "bash" && shell != "zsh") {
    return UsageError(
        absl::StrCat("shell: found \"", shell, "\", expected bash or zsh"));
  }
  std::cout << (shell == "bash" ? BashCompletion() : ZshCompletion());
  return absl::OkStatus();
}

absl::Status PrintProgram(const std::string& file, const Settings& settings,
                          Output* output) {
  ASSIGN_OR_RETURN(
      const ProgramTable table,
      ReadProgramTable(file, settings.files[PositionOf(Operand::kInput)]));
  output->Program(table);
  return absl::OkStatus();
}

absl::Status RunCapabilities(const CommandContext& context) {
  ASSIGN_OR_RETURN(
      const v1::GetCapabilitiesResponse response,
      context.client->Capabilities(absl::Now() + context.settings.timeout));
  context.output->Capabilities(response);
  return absl::OkStatus();
}

absl::Status RunSessions(const CommandContext& context) {
  const std::string handle = absl::GetFlag(FLAGS_close);
  if (!handle.empty()) {
    RETURN_IF_ERROR(context.client->CloseSession(
        handle, absl::Now() + context.settings.timeout));
  }
  ASSIGN_OR_RETURN(
      const v1::ListSessionsResponse response,
      context.client->Sessions(absl::GetFlag(FLAGS_everybody),
                               absl::Now() + context.settings.timeout));
  context.output->Sessions(response);
  return absl::OkStatus();
}

absl::Status RunCommand(const std::vector<std::string>& words, Output* output) {
  if (words.empty()) return UsageError("a command is missing");
  const std::vector<std::string> arguments(words.begin() + 1, words.end());
  ASSIGN_OR_RETURN(const Command command, FindCommand(words[0], arguments));
  if (command.name == "completions") return PrintCompletions(arguments[0]);
  ASSIGN_OR_RETURN(const Settings settings, ReadSettings());
  if (command.name == "program") {
    return PrintProgram(arguments[0], settings, output);
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Client> client,
                   Client::Connect(settings.client));
  const CommandContext context{settings, client.get(), output};
  if (command.name == "top") return RunTop(context);
  if (command.name == "check") return RunCheck(arguments, context);
  if (command.name == "sessions") return RunSessions(context);
  if (command.name == "capabilities") return RunCapabilities(context);
  ASSIGN_OR_RETURN(const ConvProblem problem, Parse(arguments[0]));
  if (command.name == "bench") return RunBench(problem, context);
  return RunOnce(
      command.name == "forward" ? Direction::kForward : Direction::kBackward,
      problem, context);
}

// Keeps large buffers in the heap: a fresh mapping for every message costs more
// in page faults than its bytes do.
void KeepLargeBuffers() {
  constexpr int kThreshold = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, kThreshold);
  mallopt(M_TRIM_THRESHOLD, kThreshold);
}

int Main(int argc, char** argv) {
  // Before the flags' own --help, which lists source files.
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--") break;
    if (argument == "--help" || argument == "-h" || argument == "-help" ||
        (argument == "help" && i == 1)) {
      std::cout << Usage();
      return 0;
    }
    if (argument == "--version") {
      std::cout << "convgrad " CONVGRAD_VERSION "\n";
      return 0;
    }
  }
  KeepLargeBuffers();
  const std::vector<char*> parsed = absl::ParseCommandLine(argc, argv);
  const std::unique_ptr<Output> output =
      absl::GetFlag(FLAGS_json) ? MakeJsonOutput() : MakeTextOutput();
  const absl::Status status =
      RunCommand({parsed.begin() + 1, parsed.end()}, output.get());
  if (!status.ok()) output->Error(status);
  output->Finish();
  if (status.ok()) return 0;
  return status.code() == absl::StatusCode::kInvalidArgument ? kExitUsage
                                                             : kExitFailed;
}

}  // namespace
}  // namespace convgrad

int main(int argc, char** argv) try {
  return convgrad::Main(argc, argv);
} catch (const std::bad_alloc&) {
  std::cerr << "convgrad: not enough memory for these tensors\n";
  return convgrad::kExitFailed;
}
