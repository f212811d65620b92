// Defines the tool's commands and their options for CLI11.
#pragma once

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "client/cpp/command_line/settings/settings.h"

namespace convgrad {

// Adds the commands to `app`. A parse writes to `*settings`, and to `*refusal`
// if it refuses a value. Both must outlive `app`.
void AddCommands(Settings* settings, absl::Status* refusal, CLI::App* app);

}  // namespace convgrad
