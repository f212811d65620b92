// Generates shell scripts that complete the tool's command line.
#pragma once

#include <string>

namespace convgrad {

// Return scripts for bash (for `source` or a folder of completions) and for zsh
// (a file _convgrad on fpath).
std::string BashCompletion();
std::string ZshCompletion();

}  // namespace convgrad
