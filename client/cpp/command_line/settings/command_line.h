// Reads the tool's command line.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/command_line/settings/settings.h"

namespace convgrad {

struct CommandLine {
  Settings settings;
  // The text that --help asks for; empty without it.
  std::string answer;
};

// Reads the arguments that follow the program's name. Options may come before
// the command, too; "help" stands for --help.
// Errors: kInvalidArgument naming the option or argument.
absl::StatusOr<CommandLine> ReadCommandLine(std::vector<std::string> arguments);

}  // namespace convgrad
