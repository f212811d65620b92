// Reads the tool's command line.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/command_line/settings/settings.h"

namespace convgrad {

struct CommandLine {
  Settings settings;
  // The text that --help prints; empty without --help.
  std::string answer;
};

// Parses the arguments after the program's name. Options may also come before
// the command; "help" stands for --help.
// Errors: kInvalidArgument naming the option or argument.
absl::StatusOr<CommandLine> ReadCommandLine(std::vector<std::string> arguments);

}  // namespace convgrad
