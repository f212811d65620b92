// The memory regions that clients may name in requests.
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

  // Makes a region and registers it under a random id, which is all that a
  // client needs to use it: 128 bits that nobody guesses.
  // Errors: kInvalidArgument if byte_length < 1; kResourceExhausted, reason
  // LIMIT_EXCEEDED if that can never be had, BUSY if not now.
  absl::StatusOr<Registration> Create(int64_t byte_length);

  // Forgets a region; calls that have found it keep it. Nothing happens if
  // there is no such region.
  void Remove(const std::string& id);

  // Returns null if there is none, for whatever reason.
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
