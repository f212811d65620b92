// What the tool takes, told to people and to shells.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace convgrad {

// What a command takes.
enum class Arguments { kNone, kProblem, kProblems, kFile, kShell };

struct Command {
  absl::string_view name;
  Arguments arguments;
  absl::string_view help;
};

absl::Span<const Command> AllCommands();

// Returns the help text.
std::string Usage();

// Return a script that has the shell complete commands, flags and their values.
// bash: for `source` or a folder of completions. zsh: a file _convgrad on
// fpath.
std::string BashCompletion();
std::string ZshCompletion();

}  // namespace convgrad
