// These functions decide how many threads a server has.
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

// Returns the number of threads that make plans for calls. Each takes CPU time
// from the workers. At least 2, so that a small network needn't wait for a
// large one. Requires: WithDefaults. Thread-safe.
int PlanThreads(const Config& config);

}  // namespace convgrad
