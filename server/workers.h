// `SchedulerOptions` decides the workers of a server.
#pragma once

#include <vector>

#include "backends/registry.h"
#include "server/flags/config.h"
#include "server/machine/machine.h"
#include "server/scheduling/scheduler.h"

namespace convgrad {

// Returns the configured workers on cores, if a backend computes there, and one
// unpinned worker for each device. Thread-safe.
Scheduler::Options SchedulerOptions(
    const Config& config, const Machine& machine,
    const std::vector<RegisteredBackend>& backends);

}  // namespace convgrad
