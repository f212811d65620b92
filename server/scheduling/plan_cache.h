// `PlanCache` keeps plans by the operation that they compute, because making a
// plan takes longer than running it.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "backends/core/backend.h"
#include "backends/core/mutex.h"
#include "server/memory/memory_budget.h"

namespace convgrad {

// `PlanCache` is thread-safe.
class PlanCache {
 public:
  struct Lookup {
    std::shared_ptr<const Plan> plan;
    bool hit = false;   // False if the caller made the plan or waited for it.
    bool kept = false;  // False if the cache doesn't count its bytes.
  };

  // Keeps the most recently used plans, up to `max_bytes` of resident bytes.
  // Returns a larger plan without keeping it. `budget` pays for the memory to
  // make a plan; null: not counted. `budget` outlives this.
  explicit PlanCache(int64_t max_bytes, MemoryBudget* budget = nullptr);

  // Returns the plan of `backend` for `operation`. The calling thread makes it
  // if the cache lacks it. If several threads ask for the same plan at once,
  // one makes it and the others wait. Errors aren't cached.
  // Errors: those of Backend::MakePlan; kResourceExhausted, reason BUSY or
  // LIMIT_EXCEEDED, if there is no memory to make the plan.
  absl::StatusOr<Lookup> Get(const Backend& backend, const Operation& operation,
                             const PlanOptions& options);
  // Returns the plan if the cache has it, otherwise null. Doesn't wait.
  std::shared_ptr<const Plan> Find(const Backend& backend,
                                   const Operation& operation,
                                   const PlanOptions& options);

  // Changes the limit, and drops the plans beyond it.
  void SetMaxBytes(int64_t bytes);

  int64_t bytes() const;
  int64_t plans() const;

 private:
  struct Entry {
    std::string key;
    // Not OK while a thread makes the plan.
    absl::StatusOr<std::shared_ptr<const Plan>> plan =
        absl::UnknownError("being made");
    bool making = true;
    int64_t bytes = 0;
  };
  // Shared, because a waiter reads its entry after the cache dropped it.
  using Entries = std::list<std::shared_ptr<Entry>>;

  absl::StatusOr<std::unique_ptr<Plan>> Make(const Backend& backend,
                                             const Operation& operation,
                                             const PlanOptions& options) const;
  void Finish(Entries::iterator position,
              absl::StatusOr<std::unique_ptr<Plan>> made);
  absl::StatusOr<Lookup> LookupOf(const Entry& entry, bool hit) const;
  // Move an entry, or the entries beyond the limit, to `dropped`.
  void Drop(Entries::iterator position, Entries* dropped)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Trim(Entries* dropped) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::atomic<int64_t> max_bytes_;
  MemoryBudget* const budget_;
  mutable Mutex mutex_;
  CondVar made_;
  // The most recently used entry is first.
  Entries entries_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, Entries::iterator> by_key_
      ABSL_GUARDED_BY(mutex_);
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t plans_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace convgrad
