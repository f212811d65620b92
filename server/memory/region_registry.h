// `RegionRegistry` finds the memory regions that clients name in requests.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "backends/core/mutex.h"
#include "server/memory/memory_budget.h"
#include "server/memory/region.h"

namespace convgrad {

// Thread-safe.
class RegionRegistry {
 public:
  struct Registration {
    std::string id;
    FileDescriptor file;
  };

  // Takes regions' memory from `budget`, which outlives every region, and at
  // most `max_bytes` of it at once.
  RegionRegistry(MemoryBudget* budget, int64_t max_bytes);

  // Makes a region and registers it under a random id of 128 bits. The id is
  // all that a client needs to use the region.
  // Errors: kInvalidArgument if byte_length < 1; kResourceExhausted, reason
  // LIMIT_EXCEEDED if the bytes can never fit, BUSY if they don't now.
  absl::StatusOr<Registration> Create(int64_t byte_length);

  // Removes a region from the registry. Calls that have found it keep it. Does
  // nothing if there is no such region.
  void Remove(const std::string& id);

  // Returns null if no open region has this id.
  std::shared_ptr<const Region> Find(const std::string& id) const;

  int64_t max_bytes() const { return max_bytes_; }
  // Of those registered.
  int64_t regions() const;
  int64_t region_bytes() const;

 private:
  // Counts `bytes` as taken and takes them from the budget.
  absl::StatusOr<Reservation> Reserve(int64_t bytes);

  MemoryBudget* const budget_;
  const int64_t max_bytes_;
  mutable Mutex mutex_;
  // By id.
  std::map<std::string, std::shared_ptr<const Region>> regions_
      ABSL_GUARDED_BY(mutex_);
  // Of regions registered or being made.
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace convgrad
