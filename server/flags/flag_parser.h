// `ParseFlags` parses the server's command line.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/flags/config.h"

namespace convgrad {

struct ParsedFlags {
  Config config;
  // The text for --help or --version; empty without these flags.
  std::string answer;
};

// Parses the arguments that follow the program's name. The last value of a flag
// counts. --flagfile=FILE,... stands for the lines of the files, which hold one
// --flag=value each; a line that begins with # is a comment. Thread-safe.
// Errors: kInvalidArgument naming the flag or the file, found and expected.
absl::StatusOr<ParsedFlags> ParseFlags(
    const std::vector<std::string>& arguments, const std::string& version);

}  // namespace convgrad
