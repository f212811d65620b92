// Weights in the form that plans compute with, kept for when the same bytes
// come again: a trainer's micro-batches, an evaluation's batches.
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

// What a run does with its weight's prepared form. Move-only. Mustn't outlive
// its cache. Thread-compatible.
class WeightLease {
 public:
  WeightLease() = default;
  WeightLease(WeightLease&& other) noexcept { *this = std::move(other); }
  WeightLease& operator=(WeightLease&& other) noexcept;
  // A place that nobody filled isn't kept.
  ~WeightLease();

  // Empty if the run is on its own.
  absl::Span<std::byte> bytes() const;
  bool is_prepared() const { return is_prepared_; }
  const Plan* plan() const;
  // To be called once a run has filled bytes(): now others may read them.
  void SetPrepared();

 private:
  friend class WeightCache;
  struct Entry;

  WeightCache* cache_ = nullptr;
  std::shared_ptr<Entry> entry_;
  bool is_prepared_ = false;
};

// Thread-safe. A weight is known by its client, its plan and a 128-bit hash of
// its bytes whose key is a secret of this process (HighwayHash): clients never
// share one, and can't make two collide. Weights that change with every call,
// a trainer's usual ones, cost a look at some of their bytes; only what seems
// to come a second time is hashed and kept. Weights that a session keeps are
// known by numbers.
class WeightCache {
 public:
  // Holds at most `max_bytes`; the longest unused goes first. 0: keeps nothing.
  explicit WeightCache(int64_t max_bytes);
  // Requires: no lease outstanding.
  ~WeightCache();

  // Returns the prepared form of `weight`, a place to put it, or an empty
  // lease. `weight` mustn't change until the run is over.
  WeightLease Lease(const std::string& client,
                    const std::shared_ptr<const Plan>& plan,
                    absl::Span<const std::byte> weight);
  // Likewise, of weights whose numbers stand for their bytes and no others, so
  // that nothing is hashed. All the weights of a network are kept when they
  // come a second time: an evaluation between two updates may be their only
  // use.
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

  // Whether a weight that looks like this one was here lately.
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
