// `WeightCache` keeps weights in the form that plans compute with, because a
// trainer's micro-batches and an evaluation's batches often have the same
// weights.
#pragma once

#include <array>
#include <atomic>
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

// `WeightLease` is the use of one cache entry by one run. Move-only; must not
// outlive its cache. Thread-compatible.
class WeightLease {
 public:
  WeightLease() = default;
  WeightLease(WeightLease&& other) noexcept { *this = std::move(other); }
  WeightLease& operator=(WeightLease&& other) noexcept;
  // Drops the entry if no run has filled it.
  ~WeightLease();

  // The prepared weights, or the memory for them; empty if the lease has no
  // entry.
  absl::Span<std::byte> bytes() const;
  bool is_prepared() const { return is_prepared_; }
  const Plan* plan() const;
  // Call it when a run has filled bytes(). Then other runs may read them.
  void SetPrepared();

 private:
  friend class WeightCache;
  struct Entry;

  WeightLease(WeightCache* cache, std::shared_ptr<Entry> entry,
              bool is_prepared)
      : cache_(cache), entry_(std::move(entry)), is_prepared_(is_prepared) {}

  WeightCache* cache_ = nullptr;
  std::shared_ptr<Entry> entry_;
  bool is_prepared_ = false;
};

// The key of a weight is its client, its plan and a 128-bit hash of its bytes
// with a secret of this process (HighwayHash). So clients share no entry and
// can't make two weights collide. A trainer's weights change with each call, so
// the cache samples each weight first, and hashes and keeps only weights that
// seem to come a second time. Ids identify weights that a session keeps, so
// they need no hash. Thread-safe.
class WeightCache {
 public:
  // Keeps the most recently used weights, up to `max_bytes`; 0: none.
  explicit WeightCache(int64_t max_bytes);
  // Requires: no lease exists.
  ~WeightCache();

  // Returns a lease of the prepared form of `weight`, a lease of memory for it,
  // or an empty lease. `weight` must not change until the run is over.
  WeightLease Lease(const std::string& client,
                    const std::shared_ptr<const Plan>& plan,
                    absl::Span<const std::byte> weight);
  // As above, for weights that ids identify. Keeps all weights of a network
  // when they come a second time, because an evaluation between two updates may
  // use them only once.
  WeightLease Lease(const std::string& client,
                    const std::shared_ptr<const Plan>& plan,
                    absl::Span<const uint64_t> weight_ids);

  // Changes the limit, and drops unused entries beyond it. Those in use are
  // dropped when the next weight is kept.
  void SetMaxBytes(int64_t bytes);

  int64_t bytes() const;
  int64_t hits() const { return hits_; }
  int64_t misses() const { return misses_; }  // Entries made.

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

  // Returns whether a weight with the same samples came recently.
  bool SeemsKnown(const std::string& client, const Plan* plan,
                  std::vector<std::byte> look);
  WeightLease LeaseFor(const Key& key, const std::shared_ptr<const Plan>& plan);
  Hash HashOf(absl::Span<const std::byte> bytes) const;
  // Drops unused entries until `bytes` more fit. Returns false if they don't
  // fit.
  bool MakeRoom(int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Drop(Entries::iterator position) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Forget(const Entry& entry);

  std::atomic<int64_t> max_bytes_;
  const std::array<uint64_t, 4> secret_;
  BufferPool pool_{0};
  mutable Mutex mutex_;
  std::vector<uint64_t> lately_ ABSL_GUARDED_BY(mutex_);
  Entries entries_ ABSL_GUARDED_BY(mutex_);  // The most recently used is first.
  absl::flat_hash_map<Key, Entries::iterator> by_key_ ABSL_GUARDED_BY(mutex_);
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::atomic<int64_t> hits_{0};
  std::atomic<int64_t> misses_{0};
};

}  // namespace convgrad
