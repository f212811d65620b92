#include "server/limit_watch.h"

#include <malloc.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "spdlog/spdlog.h"

namespace convgrad {

LimitWatch::LimitWatch(Config flags, Machine machine, ComputeEngine* engine)
    : flags_(std::move(flags)),
      start_(WithDefaults(flags_, machine)),
      first_(std::move(machine)),
      engine_(engine),
      machine_(first_),
      budget_bytes_(start_.memory_budget_bytes) {
  ResizeQuota();
}

void LimitWatch::Look() {
  const std::optional<Machine> now = ReadLimits(machine_, flags_.machine_root);
  if (now) {
    const Machine before = std::exchange(machine_, *now);
    if (before.memory_bytes != machine_.memory_bytes) FollowMemory();
    if (before.usable_cores != machine_.usable_cores) FollowCores();
  }
  ResizeQuota();
}

void LimitWatch::FollowMemory() {
  const int64_t limit = machine_.memory_bytes;
  if (flags_.memory_budget_bytes != 0) {
    if (limit >= flags_.memory_budget_bytes) return;
    spdlog::warn(
        "{} is {} bytes now, less than --memory_budget_bytes={}: the kernel "
        "may end the server",
        machine_.memory_name, limit, flags_.memory_budget_bytes);
    return;
  }
  const Config config = WithDefaults(flags_, machine_);
  const bool is_smaller = config.memory_budget_bytes < budget_bytes_;
  budget_bytes_ = config.memory_budget_bytes;
  engine_->Resize(config);
  if (is_smaller) malloc_trim(0);
  const MemoryBudget& budget = engine_->memory->budget;
  spdlog::info("{} is {} bytes now: the budget is {}, of which calls have {}",
               machine_.memory_name, limit, config.memory_budget_bytes,
               budget.capacity_bytes());
  if (budget.used_bytes() > budget.capacity_bytes()) {
    spdlog::warn(
        "calls and sessions hold {} bytes, more than their share of {}: they "
        "keep them, and new calls wait",
        budget.used_bytes(), budget.capacity_bytes());
  }
}

void LimitWatch::FollowCores() {
  const int workers = start_.workers;
  // Rounded up: half a worker isn't possible, and none would stop the server.
  const int active =
      std::clamp((workers * machine_.usable_cores + first_.usable_cores - 1) /
                     first_.usable_cores,
                 1, workers);
  engine_->scheduler.SetActiveWorkers(active);
  spdlog::info(
      "the server has {} cores now and had {} at its start: {} of {} workers "
      "take jobs, each with {} threads as before",
      machine_.usable_cores, first_.usable_cores, active, workers,
      start_.threads_per_worker);
}

void LimitWatch::ResizeQuota() {
  const MemoryBudget& budget = engine_->memory->budget;
  const int64_t bytes = budget.capacity_bytes();
  if (bytes == quota_bytes_) return;
  if (bytes < quota_bytes_ && budget.used_bytes() > bytes) return;
  quota_bytes_ = bytes;
  quota_.Resize(static_cast<size_t>(bytes));
}

}  // namespace convgrad
