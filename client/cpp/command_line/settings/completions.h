// Scripts that have shells complete the tool's command line.
#pragma once

#include <string>

namespace convgrad {

// bash: for `source` or a folder of completions. zsh: a file _convgrad on
// fpath.
std::string BashCompletion();
std::string ZshCompletion();

}  // namespace convgrad
