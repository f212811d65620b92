// `SchedulerOptions` decides which workers a server has.
#pragma once

#include <vector>

#include "backends/registry.h"
#include "server/flags/config.h"
#include "server/machine/machine.h"
#include "server/scheduling/scheduler.h"

namespace convgrad {

// Returns the workers on cores that are configured, if a backend computes
// there, and one for each device, which isn't pinned.
Scheduler::Options SchedulerOptions(
    const Config& config, const Machine& machine,
    const std::vector<RegisteredBackend>& backends);

}  // namespace convgrad
