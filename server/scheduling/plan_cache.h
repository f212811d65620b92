// `PlanCache` keeps plans by the operation that they compute, because making
// one is the slow half of a call.
#pragma once

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

// Thread-safe.
class PlanCache {
 public:
  struct Lookup {
    std::shared_ptr<const Plan> plan;
    bool hit = false;   // false if the caller made it or waited for it
    bool kept = false;  // false: the cache doesn't count its bytes
  };

  // Keeps the most recently used plans, up to `max_bytes` of resident bytes.
  // Returns a larger plan, but doesn't keep it. `budget` pays for the memory
  // that making a plan takes; null: none does. It outlives this.
  explicit PlanCache(int64_t max_bytes, MemoryBudget* budget = nullptr);

  // Returns the plan of `backend` for `operation`. The calling thread makes it
  // if the cache lacks it. If several threads ask for the same plan at once,
  // one makes it and the others wait. Errors: those of Backend::MakePlan;
  // kResourceExhausted, reason BUSY or LIMIT_EXCEEDED, if there is no memory
  // for its tables. They aren't kept.
  absl::StatusOr<Lookup> Get(const Backend& backend, const Operation& operation,
                             const PlanOptions& options);

  int64_t bytes() const;
  int64_t plans() const;

 private:
  struct Entry {
    std::string key;
    // Not OK yet while it is being made: `making`.
    absl::StatusOr<std::shared_ptr<const Plan>> plan =
        absl::UnknownError("being made");
    bool making = true;
    int64_t bytes = 0;
  };
  // Shared: a waiter reads its entry after it was dropped.
  using Entries = std::list<std::shared_ptr<Entry>>;

  absl::StatusOr<std::unique_ptr<Plan>> Make(const Backend& backend,
                                             const Operation& operation,
                                             const PlanOptions& options) const;
  void Finish(Entries::iterator position,
              absl::StatusOr<std::unique_ptr<Plan>> made);
  Lookup LookupOf(const Entry& entry, bool hit) const;
  void Drop(Entries::iterator position) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Trim() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int64_t max_bytes_;
  MemoryBudget* const budget_;
  mutable Mutex mutex_;
  CondVar made_;
  // Last used first.
  Entries entries_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, Entries::iterator> by_key_
      ABSL_GUARDED_BY(mutex_);
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t plans_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace convgrad
