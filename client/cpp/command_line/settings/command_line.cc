#include "client/cpp/command_line/settings/command_line.h"

#include <algorithm>
#include <exception>
#include <fstream>
#include <regex>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "client/cpp/command_line/settings/commands_app.h"
#include "client/cpp/command_line/settings/option_values.h"

namespace convgrad {
namespace {

absl::Status UsageError(absl::string_view message,
                        absl::string_view command = "") {
  return absl::InvalidArgumentError(
      absl::StrCat(message, "; see convgrad ", command, "--help"));
}

// Moves the command to the front of the arguments. If the first argument isn't
// a command, uses the last word that is one, because an option's value before
// it may look like a command (--direction forward bench).
absl::Status PutCommandFirst(const CLI::App& app,
                             std::vector<std::string>* arguments) {
  const auto is_command = [&](const std::string& word) {
    return !app.get_subcommands([&](const CLI::App* candidate) {
                 return candidate->check_name(word);
               })
                .empty();
  };
  if (!arguments->empty() && is_command(arguments->front())) {
    return absl::OkStatus();
  }
  const auto command =
      std::find_if(arguments->rbegin(), arguments->rend(), is_command);
  if (command != arguments->rend()) {
    const auto at = command.base() - 1;
    std::rotate(arguments->begin(), at, at + 1);
    return absl::OkStatus();
  }
  if (arguments->empty()) return UsageError("a command is missing");
  if (absl::StartsWith(arguments->front(), "-")) return absl::OkStatus();
  return UsageError(
      absl::StrCat("unknown command \"", arguments->front(), "\""));
}

// Splits "--option=" with an empty value into two arguments, because CLI11 2.1
// would take the following argument as the value. Returns the arguments in
// reverse order, as CLI11 expects them.
std::vector<std::string> ForParse(const std::vector<std::string>& arguments) {
  std::vector<std::string> words;
  for (const std::string& argument : arguments) {
    const bool is_empty = argument.find('=') == argument.size() - 1 &&
                          absl::StartsWith(argument, "--");
    words.push_back(argument.substr(0, argument.size() - is_empty));
    if (is_empty) words.emplace_back();
  }
  std::reverse(words.begin(), words.end());
  return words;
}

// Errors: kInvalidArgument for a value that would be ignored.
absl::Status CheckEffect(const Settings& settings) {
  if (!settings.client.server_name.empty() && settings.client.ca.empty()) {
    return Missing("--ca", "nothing",
                   "a PEM file, as there is a --server_name");
  }
  const std::string& span = settings.traceparent;
  static const auto& context = *new std::regex(
      "(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-"
      "[0-9a-f]{2}");
  if (span.empty() || std::regex_match(span, context)) return absl::OkStatus();
  return RefuseValue(
      {"--traceparent", "SPAN"}, span,
      "version-trace-parent-flags of 2, 32, 16 and 2 hexadecimal digits");
}

}  // namespace

absl::StatusOr<CommandLine> ReadCommandLine(
    std::vector<std::string> arguments) {
  CommandLine line;
  absl::Status refusal;
  CLI::App app("Convolution gradients from a server.", "convgrad");
  app.require_subcommand(1);
  app.set_version_flag("--version", "convgrad " CONVGRAD_VERSION "\n");
  AddCommands(&line.settings, &refusal, &app);
  app.footer("convgrad COMMAND --help lists a command's options.");
  if (!arguments.empty() && arguments.front() == "help") {
    std::rotate(arguments.begin(), arguments.begin() + 1, arguments.end());
    arguments.back() = "--help";
  }
  RETURN_IF_ERROR(PutCommandFirst(app, &arguments));
  try {
    app.parse(ForParse(arguments));
  } catch (const CLI::CallForHelp&) {
    line.answer = app.help();
  } catch (const CLI::CallForVersion& answer) {
    line.answer = answer.what();
  } catch (const std::exception& error) {  // from CLI11 or std::stoll
    const bool has_command = !absl::StartsWith(arguments.front(), "-");
    return UsageError(error.what(),
                      has_command ? absl::StrCat(arguments.front(), " ") : "");
  }
  RETURN_IF_ERROR(refusal);
  RETURN_IF_ERROR(CheckEffect(line.settings));
  const std::string& file = line.settings.token_file;
  if (!file.empty() && !(std::ifstream(file) >> line.settings.client.token)) {
    return RefuseValue({"--token", "FILE"}, file, "a file with a token");
  }
  return line;
}

}  // namespace convgrad
