#include "server/scheduling/weight_cache.h"

#include <algorithm>
#include <iterator>
#include <random>
#include <span>

#include "highwayhash/highwayhash_target.h"
#include "highwayhash/instruction_sets.h"

namespace convgrad {
namespace {

// Sampling and hashing smaller weights takes as long as preparing them.
constexpr int64_t kLeastBytes = 64 << 10;

// The number of weights whose samples are remembered, and the samples of one
// weight.
constexpr size_t kLooks = 4096;
constexpr int64_t kSamples = 64;
constexpr int64_t kSampleBytes = 64;

std::array<uint64_t, 4> MakeSecret() {
  std::random_device random;  // The system's generator.
  std::array<uint64_t, 4> secret;
  for (uint64_t& word : secret) word = uint64_t{random()} << 32 | random();
  return secret;
}

template <typename T>
void AppendBytes(const T* data, size_t count, std::vector<std::byte>* bytes) {
  const auto more = std::as_bytes(std::span(data, count));
  bytes->insert(bytes->end(), more.begin(), more.end());
}

// Returns samples of the weight's bytes. Requires: at least kLeastBytes.
std::vector<std::byte> LookAt(absl::Span<const std::byte> weight) {
  std::vector<std::byte> look(kSamples * kSampleBytes);
  const int64_t stride = (std::ssize(weight) - kSampleBytes) / (kSamples - 1);
  for (int64_t i = 0; i < kSamples; ++i) {
    std::copy_n(weight.data() + i * stride, kSampleBytes,
                look.data() + i * kSampleBytes);
  }
  return look;
}

}  // namespace

struct WeightLease::Entry {
  WeightCache::Key key;
  // Detects a new plan at the address of a dropped one.
  std::weak_ptr<const Plan> plan;
  Buffer buffer;
  bool is_prepared = false;  // guarded by the cache's mutex
};

WeightLease& WeightLease::operator=(WeightLease&& other) noexcept {
  std::swap(cache_, other.cache_);
  std::swap(entry_, other.entry_);
  std::swap(is_prepared_, other.is_prepared_);
  return *this;
}

WeightLease::~WeightLease() {
  if (entry_ != nullptr && !is_prepared_) cache_->Forget(*entry_);
}

absl::Span<std::byte> WeightLease::bytes() const {
  if (entry_ == nullptr) return {};
  return absl::MakeSpan(entry_->buffer.data(), entry_->buffer.size());
}

const Plan* WeightLease::plan() const {
  return entry_ == nullptr ? nullptr : entry_->key.plan;
}

void WeightLease::SetPrepared() {
  if (entry_ == nullptr || is_prepared_) return;
  is_prepared_ = true;
  MutexLock lock(&cache_->mutex_);
  entry_->is_prepared = true;
}

WeightCache::WeightCache(int64_t max_bytes)
    : max_bytes_(max_bytes), secret_(MakeSecret()), lately_(kLooks) {}

WeightCache::~WeightCache() = default;

WeightCache::Hash WeightCache::HashOf(absl::Span<const std::byte> bytes) const {
  using highwayhash::HighwayHash;
  using highwayhash::InstructionSets;
  const highwayhash::HHKey key = {secret_[0], secret_[1], secret_[2],
                                  secret_[3]};
  highwayhash::HHResult128 hash;
  InstructionSets::Run<HighwayHash>(
      key, reinterpret_cast<const char*>(bytes.data()), bytes.size(), &hash);
  return {hash[0], hash[1]};
}

bool WeightCache::SeemsKnown(const std::string& client, const Plan* plan,
                             std::vector<std::byte> look) {
  AppendBytes(&plan, 1, &look);
  AppendBytes(client.data(), client.size(), &look);
  const uint64_t now = HashOf(look)[0];
  MutexLock lock(&mutex_);
  return std::exchange(lately_[now % kLooks], now) == now;
}

WeightLease WeightCache::Lease(const std::string& client,
                               const std::shared_ptr<const Plan>& plan,
                               absl::Span<const std::byte> weight) {
  const bool is_worth_it =
      plan->prepared_weight_bytes() > 0 && std::ssize(weight) >= kLeastBytes;
  if (!is_worth_it || !SeemsKnown(client, plan.get(), LookAt(weight))) {
    return {};
  }
  return LeaseFor({client, plan.get(), HashOf(weight), {}}, plan);
}

WeightLease WeightCache::Lease(const std::string& client,
                               const std::shared_ptr<const Plan>& plan,
                               absl::Span<const uint64_t> weight_ids) {
  if (plan->prepared_weight_bytes() < kLeastBytes) return {};
  if (weight_ids.size() > 1) {
    std::vector<std::byte> look;
    AppendBytes(weight_ids.data(), weight_ids.size(), &look);
    if (!SeemsKnown(client, plan.get(), std::move(look))) return {};
  }
  return LeaseFor(
      {client, plan.get(), {}, {weight_ids.begin(), weight_ids.end()}}, plan);
}

WeightLease WeightCache::LeaseFor(const Key& key,
                                  const std::shared_ptr<const Plan>& plan) {
  const int64_t size = plan->prepared_weight_bytes();
  const int64_t capacity = BufferPool::CapacityFor(size);
  if (capacity > max_bytes_) return {};
  MutexLock lock(&mutex_);
  const auto found = by_key_.find(key);
  if (found != by_key_.end()) {
    const std::shared_ptr<Entry> entry = *found->second;
    if (entry->plan.lock() == plan) {
      // Another run is filling the entry, so this run prepares its own.
      if (!entry->is_prepared) return {};
      entries_.splice(entries_.begin(), entries_, found->second);
      ++hits_;
      return WeightLease(this, entry, /*is_prepared=*/true);
    }
    Drop(found->second);
  }
  if (!MakeRoom(capacity)) return {};
  absl::StatusOr<Buffer> buffer = pool_.Take(size);
  if (!buffer.ok()) return {};
  ++misses_;
  bytes_ += capacity;
  entries_.push_front(std::make_shared<Entry>(
      Entry{key, plan, *std::move(buffer), /*is_prepared=*/false}));
  by_key_.emplace(key, entries_.begin());
  return WeightLease(this, entries_.front(), /*is_prepared=*/false);
}

void WeightCache::SetMaxBytes(int64_t bytes) {
  MutexLock lock(&mutex_);
  max_bytes_ = bytes;
  MakeRoom(0);
}

bool WeightCache::MakeRoom(int64_t bytes) {
  auto position = entries_.end();
  while (bytes_ > max_bytes_ - bytes && position != entries_.begin()) {
    --position;
    if (position->use_count() > 1) continue;  // leased
    const auto dropped = position++;
    Drop(dropped);
  }
  return bytes_ <= max_bytes_ - bytes;
}

void WeightCache::Drop(Entries::iterator position) {
  bytes_ -= BufferPool::CapacityFor((*position)->buffer.size());
  by_key_.erase((*position)->key);
  entries_.erase(position);
}

void WeightCache::Forget(const Entry& entry) {
  MutexLock lock(&mutex_);
  const auto found = by_key_.find(entry.key);
  // The cache may have dropped the entry and made another one with this key.
  if (found != by_key_.end() && found->second->get() == &entry) {
    Drop(found->second);
  }
}

int64_t WeightCache::bytes() const {
  MutexLock lock(&mutex_);
  return bytes_;
}

}  // namespace convgrad
