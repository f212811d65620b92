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

// `RegionRegistry` is thread-safe.
class RegionRegistry {
 public:
  struct Registration {
    std::string id;
    FileDescriptor file;
  };

  // Takes the regions' memory from `budget`, at most `max_bytes` at once.
  // `budget` outlives every region.
  RegionRegistry(MemoryBudget* budget, int64_t max_bytes);

  // Makes a region and registers it under a random id of 128 bits. A client
  // that knows the id may use the region.
  // Errors: kInvalidArgument if byte_length < 1; kResourceExhausted, reason
  // LIMIT_EXCEEDED if the bytes never fit, BUSY if they don't fit now.
  absl::StatusOr<Registration> Create(int64_t byte_length);

  // Removes a region from the registry. Calls that have found it keep it. Does
  // nothing if there is no such region.
  void Remove(const std::string& id);

  // Returns the region with this id; null if there is none.
  std::shared_ptr<const Region> Find(const std::string& id) const;

  int64_t max_bytes() const { return max_bytes_; }
  // The number and the bytes of the registered regions.
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
  // Bytes of regions that are registered or being made.
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace convgrad
