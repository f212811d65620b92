// `WeightCache` keeps weights in the form that plans compute with, because the
// same bytes often come again: in a trainer's micro-batches and in an
// evaluation's batches.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "backends/core/backend.h"
#include "backends/core/mutex.h"
#include "server/memory/buffer_pool.h"

namespace convgrad {

class WeightCache;

// The use of one entry of the cache by one run. Move-only; must not outlive its
// cache. Thread-compatible.
class WeightLease {
 public:
  WeightLease() = default;
  WeightLease(WeightLease&& other) noexcept { *this = std::move(other); }
  WeightLease& operator=(WeightLease&& other) noexcept;
  // Drops the entry if no run has filled it.
  ~WeightLease();

  // The prepared weights, or the place for them; empty if the cache has none.
  absl::Span<std::byte> bytes() const;
  bool is_prepared() const { return is_prepared_; }
  const Plan* plan() const;
  // Call it when a run has filled bytes(). Other runs may read them then.
  void SetPrepared();

 private:
  friend class WeightCache;
  struct Entry;

  WeightCache* cache_ = nullptr;
  std::shared_ptr<Entry> entry_;
  bool is_prepared_ = false;
};

// The key of a weight is its client, its plan and a 128-bit hash of its bytes
// with a secret of this process (HighwayHash). So clients share no entry and
// can't make two weights collide. The cache samples each weight first, and
// hashes and keeps only those that seem to come a second time, because a
// trainer's weights change with each call. Ids identify weights that a session
// keeps. Thread-safe.
class WeightCache {
 public:
  // Keeps the most recently used weights, up to `max_bytes`; 0: none.
  explicit WeightCache(int64_t max_bytes);
  // Requires: no lease outstanding.
  ~WeightCache();

  // Returns a lease of the prepared form of `weight`, of a place for it, or an
  // empty lease. `weight` must not change until the run is over.
  WeightLease Lease(const std::string& client,
                    const std::shared_ptr<const Plan>& plan,
                    absl::Span<const std::byte> weight);
  // Likewise for weights that ids identify, so that nothing is hashed. Keeps
  // all weights of a network when they come a second time, because an
  // evaluation between two updates may be their only use.
  WeightLease Lease(const std::string& client,
                    const std::shared_ptr<const Plan>& plan,
                    absl::Span<const uint64_t> weight_ids);

  int64_t bytes() const;
  int64_t hits() const;
  int64_t misses() const;  // places given

 private:
  friend class WeightLease;
  using Entry = WeightLease::Entry;
  using Hash = std::array<uint64_t, 2>;
  struct Key {
    std::string client;
    const Plan* plan;
    Hash hash;
    std::vector<uint64_t> weight_ids;
    friend bool operator==(const Key&, const Key&) = default;
    template <typename H>
    friend H AbslHashValue(H state, const Key& key) {
      return H::combine(std::move(state), key.client, key.plan, key.hash[0],
                        key.hash[1], key.weight_ids);
    }
  };
  using Entries = std::list<std::shared_ptr<Entry>>;

  // Returns whether a weight with the same samples came lately.
  bool SeemsKnown(const std::string& client, const Plan* plan,
                  std::vector<std::byte> look);
  WeightLease LeaseFor(Key key, const std::shared_ptr<const Plan>& plan);
  Hash HashOf(absl::Span<const std::byte> bytes) const;
  // Drops unused entries until `bytes` more fit; false if they don't.
  bool MakeRoom(int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Drop(Entries::iterator position) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetPrepared(Entry* entry);
  void Forget(const Entry& entry);

  const int64_t max_bytes_;
  const std::array<uint64_t, 4> secret_;
  BufferPool pool_{0};
  mutable Mutex mutex_;
  std::vector<uint64_t> lately_ ABSL_GUARDED_BY(mutex_);
  Entries entries_ ABSL_GUARDED_BY(mutex_);  // last used first
  absl::flat_hash_map<Key, Entries::iterator> by_key_ ABSL_GUARDED_BY(mutex_);
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t hits_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t misses_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace convgrad
