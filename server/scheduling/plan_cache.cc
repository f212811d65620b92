#include "server/scheduling/plan_cache.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

std::string KeyOf(const Backend& backend, const Operation& operation,
                  const PlanOptions& options) {
  return absl::StrCat(operation.text(), "|", backend.name(), "|",
                      options.threads, "|", options.device);
}

// The most bytes that malloc may keep of freed plans, whose many small blocks
// it doesn't return by itself, while calls may take the bytes that have paid
// for them. It is the default size of the cache, so that plans which take turns
// in the cache reuse the heap. To return the 25 MiB of 400 convolutions and to
// map them again takes 15 ms, a quarter of the time to make that plan.
constexpr int64_t kMostFreed = 64 << 20;

// The bytes of freed plans that no newer plan has reused.
std::atomic<int64_t> freed_bytes = 0;

void OnMade(const Plan& plan) {
  int64_t freed = freed_bytes;
  while (!freed_bytes.compare_exchange_weak(
      freed, std::max<int64_t>(freed - plan.resident_bytes(), 0))) {
  }
}

void Free(const Plan* plan) {
  freed_bytes += plan->resident_bytes();
  delete plan;
  if (freed_bytes < kMostFreed) return;
  freed_bytes = 0;
  malloc_trim(0);
}

}  // namespace

PlanCache::PlanCache(int64_t max_bytes, MemoryBudget* budget)
    : max_bytes_(max_bytes), budget_(budget) {}

absl::StatusOr<std::unique_ptr<Plan>> PlanCache::Make(
    const Backend& backend, const Operation& operation,
    const PlanOptions& options) const {
  Reservation tables;
  if (budget_ != nullptr) {
    ASSIGN_OR_RETURN(tables,
                     budget_->TryReserve(backend.planning_bytes(operation)));
  }
  // An exception must not leave the entry in the state `making` for ever.
  try {
    return backend.MakePlan(operation, options);
  } catch (const std::exception& error) {
    return MakeError(
        absl::StatusCode::kInternal,
        {Reason::kInternal, "backend", error.what(), "no exception"});
  }
}

std::shared_ptr<const Plan> PlanCache::Find(const Backend& backend,
                                            const Operation& operation,
                                            const PlanOptions& options) {
  const std::string key = KeyOf(backend, operation, options);
  MutexLock lock(&mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end() || (*found->second)->making) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return *(*found->second)->plan;
}

absl::StatusOr<PlanCache::Lookup> PlanCache::Get(const Backend& backend,
                                                 const Operation& operation,
                                                 const PlanOptions& options) {
  std::string key = KeyOf(backend, operation, options);
  Entries::iterator position;
  {
    MutexLock lock(&mutex_);
    const auto found = by_key_.find(key);
    if (found != by_key_.end()) {
      const std::shared_ptr<Entry> entry = *found->second;
      entries_.splice(entries_.begin(), entries_, found->second);
      const bool hit = !entry->making;
      while (entry->making) made_.Wait(&mutex_);
      return LookupOf(*entry, hit);
    }
    entries_.push_front(std::make_shared<Entry>());
    position = entries_.begin();
    (*position)->key = key;
    by_key_.emplace(std::move(key), position);
  }
  const std::shared_ptr<Entry> entry = *position;
  Finish(position, Make(backend, operation, options));
  // Reads the plan without the lock, because only this thread writes it.
  return LookupOf(*entry, /*hit=*/false);
}

absl::StatusOr<PlanCache::Lookup> PlanCache::LookupOf(const Entry& entry,
                                                      bool hit) const {
  if (!entry.plan.ok()) return entry.plan.status();
  return Lookup{*entry.plan, hit, entry.bytes <= max_bytes_};
}

void PlanCache::Finish(Entries::iterator position,
                       absl::StatusOr<std::unique_ptr<Plan>> made) {
  Entries dropped;  // Freed after the lock, because that may take long.
  MutexLock lock(&mutex_);
  Entry& entry = **position;
  entry.making = false;
  if (made.ok()) {
    OnMade(**made);
    entry.plan = std::shared_ptr<const Plan>(made->release(), Free);
    entry.bytes = (*entry.plan)->resident_bytes();
    bytes_ += entry.bytes;
    ++plans_;
    if (entry.bytes > max_bytes_) Drop(position, &dropped);
    Trim(&dropped);
  } else {
    entry.plan = made.status();
    by_key_.erase(entry.key);
    entries_.erase(position);
  }
  made_.NotifyAll();
}

void PlanCache::Drop(Entries::iterator position, Entries* dropped) {
  bytes_ -= (*position)->bytes;
  --plans_;
  by_key_.erase((*position)->key);
  dropped->splice(dropped->end(), entries_, position);
}

void PlanCache::Trim(Entries* dropped) {
  auto position = entries_.end();
  while (bytes_ > max_bytes_) {
    --position;
    if ((*position)->making) continue;
    Drop(position++, dropped);
  }
}

void PlanCache::SetMaxBytes(int64_t bytes) {
  Entries dropped;
  MutexLock lock(&mutex_);
  max_bytes_ = bytes;
  Trim(&dropped);
}

int64_t PlanCache::bytes() const {
  MutexLock lock(&mutex_);
  return bytes_;
}

int64_t PlanCache::plans() const {
  MutexLock lock(&mutex_);
  return plans_;
}

}  // namespace convgrad
