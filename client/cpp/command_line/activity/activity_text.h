// Formats the output of `convgrad top`.
#pragma once

#include <string>

#include "client/cpp/command_line/activity/server_activity.h"

namespace convgrad {

// Returns lines of totals, then tables of methods, operations and steps of
// networks. Omits rows whose rate is 0.
std::string TextOf(const ServerActivity& activity);

}  // namespace convgrad
