#include "server/workers.h"

#include <algorithm>

#include "server/devices.h"

namespace convgrad {
namespace {

bool NeedsCores(const std::vector<RegisteredBackend>& backends) {
  return std::any_of(backends.begin(), backends.end(), [](const auto& entry) {
    return entry.backend.ok() && (*entry.backend)->device_count() == 0;
  });
}

}  // namespace

Scheduler::Options SchedulerOptions(
    const Config& config, const Machine& machine,
    const std::vector<RegisteredBackend>& backends) {
  Scheduler::Options options;
  if (NeedsCores(backends)) {
    options.workers.resize(config.workers);
    if (config.pin_workers) {
      const auto sets =
          CoreSets(machine, config.workers, config.threads_per_worker);
      for (size_t i = 0; i < sets.size(); ++i) {
        options.workers[i].cores = sets[i];
      }
    }
  }
  ForEachDevice(backends, [&](const Backend& backend, int device) {
    options.workers.push_back({{}, &backend, device});
  });
  options.threads_per_worker = config.threads_per_worker;
  options.queue_capacity = config.queue_capacity;
  return options;
}

int PlanThreads(const Config& config) {
  return std::clamp(config.workers * config.threads_per_worker / 2, 2, 16);
}

}  // namespace convgrad
