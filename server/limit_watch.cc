#include "server/limit_watch.h"

#include <malloc.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "spdlog/spdlog.h"

namespace convgrad {

LimitWatch::LimitWatch(Config flags, Machine machine, ComputeEngine* engine,
                       SetQuota set_quota)
    : flags_(std::move(flags)),
      config_(WithDefaults(flags_, machine)),
      first_(std::move(machine)),
      engine_(engine),
      machine_(first_),
      budget_bytes_(config_.memory_budget_bytes),
      set_quota_(std::move(set_quota)) {
  ResizeQuota();
}

void LimitWatch::Look() {
  const std::optional<Machine> now = ReadLimits(machine_, flags_.machine_root);
  if (now) {
    const Machine before = std::exchange(machine_, *now);
    if (before.memory_bytes != machine_.memory_bytes) FollowMemory();
    if (before.usable_cores != machine_.usable_cores) FollowCores();
  }
  // The bytes that sessions keep may have changed as well.
  engine_->Resize(config_);
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
  // Workers and their threads stay as they were.
  Machine machine = first_;
  machine.memory_bytes = limit;
  machine.memory_name = machine_.memory_name;
  config_ = WithDefaults(flags_, machine);
  const bool is_smaller = config_.memory_budget_bytes < budget_bytes_;
  budget_bytes_ = config_.memory_budget_bytes;
  engine_->Resize(config_);
  if (is_smaller) malloc_trim(0);
  const MemoryBudget& budget = engine_->memory->budget;
  spdlog::info("{} is {} bytes now: the budget is {}, of which calls have {}",
               machine_.memory_name, limit, config_.memory_budget_bytes,
               budget.capacity_bytes());
  const KeptMemory& kept = *engine_->sessions.memory();
  if (kept.used_bytes() > kept.max_bytes()) {
    spdlog::warn(
        "sessions keep {} bytes, more than the {} that they may have now: they "
        "stay, and the server refuses more until clients drop some",
        kept.used_bytes(), kept.max_bytes());
  }
}

void LimitWatch::FollowCores() {
  const int workers = config_.workers;
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
      config_.threads_per_worker);
}

void LimitWatch::ResizeQuota() {
  const MemoryBudget& budget = engine_->memory->budget;
  const int64_t bytes = budget.capacity_bytes();
  if (bytes == quota_bytes_) return;
  if (bytes < quota_bytes_ && budget.used_bytes() > bytes) return;
  quota_bytes_ = bytes;
  set_quota_(bytes);
}

}  // namespace convgrad
