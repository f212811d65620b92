// What `convgrad top` shows.
#pragma once

#include <string>

#include "client/cpp/command_line/activity/server_activity.h"

namespace convgrad {

// Returns lines of totals, then tables of methods, operations and, where
// networks have run, their steps.
std::string TextOf(const ServerActivity& activity);

}  // namespace convgrad
