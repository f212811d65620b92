#include "server/memory/buffer_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "backends/core/steady_now.h"

namespace convgrad {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kHugePage = int64_t{2} << 20;
// Buffers of at least this size are mappings of their own, so that they are on
// huge pages and the process shrinks when the pool frees them.
constexpr int64_t kMapFrom = 2 * kHugePage;
// The pool keeps no smaller buffers, because malloc serves them as fast. The
// limit also bounds the length of the idle list.
constexpr int64_t kKeepFrom = int64_t{64} << 10;

// Returns memory aligned to kHugePage. It maps one page more and unmaps the
// ends.
std::byte* MapAligned(int64_t bytes) {
  void* mapping = mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return nullptr;
  auto* start = static_cast<std::byte*>(mapping);
  const auto address = reinterpret_cast<uintptr_t>(mapping);
  const int64_t head = (kHugePage - address % kHugePage) % kHugePage;
  if (head > 0) munmap(start, head);
  munmap(start + head + bytes, kHugePage - head);
  madvise(start + head, bytes, MADV_HUGEPAGE);
  return start + head;
}

}  // namespace

Buffer::Buffer(Buffer&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)),
      block_(std::exchange(other.block_, {})),
      size_(std::exchange(other.size_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(block_, other.block_);
  std::swap(size_, other.size_);
  // Returns this buffer's block now, not when `other` is destroyed.
  Buffer old = std::move(other);
  return *this;
}

Buffer::~Buffer() {
  if (pool_ != nullptr) pool_->Return(block_);
}

BufferPool::BufferPool(int64_t max_idle_bytes,
                       std::shared_ptr<MemoryPinner> pinner,
                       SpareBytes spare_bytes)
    : max_idle_bytes_(max_idle_bytes),
      pinner_(std::move(pinner)),
      spare_bytes_(std::move(spare_bytes)) {}

BufferPool::~BufferPool() {
  MutexLock lock(&mutex_);
  assert(outstanding_ == 0);
  Free(idle_);
}

BufferPool::Block BufferPool::Allocate(int64_t capacity) {
  if (capacity < kMapFrom) {
    return {static_cast<std::byte*>(std::aligned_alloc(kAlignment, capacity)),
            capacity};
  }
  Block block{MapAligned(capacity), capacity};
  if (block.data != nullptr && pinner_ != nullptr) {
    block.is_pinned = pinner_->Pin(block.data, capacity);
  }
  return block;
}

int64_t BufferPool::CapacityFor(int64_t size) {
  if (size <= 0) return 0;
  const auto power =
      static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(size)));
  // Mappings are whole memory pages, because 4 KiB divides their granules.
  const int64_t granule = std::max(kAlignment, power / 8);
  return (size + granule - 1) / granule * granule;
}

absl::StatusOr<Buffer> BufferPool::Take(int64_t size) {
  assert(size >= 0);
  if (size == 0) return Buffer();
  const int64_t capacity = CapacityFor(size);
  Block block;
  {
    MutexLock lock(&mutex_);
    const auto found = std::find_if(
        idle_.begin(), idle_.end(),
        [&](const Block& idle) { return idle.capacity == capacity; });
    if (found != idle_.end()) {
      block = *found;
      idle_bytes_ -= capacity;
      idle_.erase(found);
    }
    outstanding_bytes_ += capacity;
    ++outstanding_;
    ++taken_;
  }
  if (block.data == nullptr) block = Allocate(capacity);
  if (block.data == nullptr) {
    MutexLock lock(&mutex_);
    outstanding_bytes_ -= capacity;
    --outstanding_;
    return Busy("server.memory", "no memory",
                absl::StrCat(size, " bytes from the system"));
  }
  return Buffer(this, block, size);
}

std::list<BufferPool::IdleBlock> BufferPool::Trim(absl::Time time) {
  // The lock must be held: a call that takes spare bytes later then finds the
  // blocks that are returned now.
  const int64_t max_bytes = MostIdle();
  std::list<IdleBlock> trimmed;
  while (idle_bytes_ > max_bytes ||
         (!idle_.empty() && idle_.back().returned < time)) {
    idle_bytes_ -= idle_.back().capacity;
    trimmed.splice(trimmed.end(), idle_, std::prev(idle_.end()));
  }
  return trimmed;
}

int64_t BufferPool::MostIdle() const {
  return std::max<int64_t>(max_idle_bytes_ + spare_bytes_(), 0);
}

void BufferPool::SetMaxIdle(int64_t bytes) {
  max_idle_bytes_ = bytes;
  Release();
}

void BufferPool::Return(const Block& block) {
  std::list<IdleBlock> trimmed;
  {
    MutexLock lock(&mutex_);
    outstanding_bytes_ -= block.capacity;
    --outstanding_;
    if (block.capacity < kKeepFrom || block.capacity > MostIdle()) {
      trimmed.push_back({block, SteadyNow()});
    } else {
      idle_.push_front({block, SteadyNow()});
      idle_bytes_ += block.capacity;
      trimmed = Trim(absl::InfinitePast());
    }
  }
  Free(trimmed);
}

void BufferPool::Release(absl::Time time) {
  std::list<IdleBlock> trimmed;
  {
    MutexLock lock(&mutex_);
    trimmed = Trim(time);
  }
  Free(trimmed);
}

void BufferPool::Free(const std::list<IdleBlock>& blocks) {
  for (const Block& block : blocks) {
    if (block.is_pinned) pinner_->Unpin(block.data);
    if (block.capacity >= kMapFrom) {
      munmap(block.data, block.capacity);
    } else {
      std::free(block.data);
    }
  }
}

int64_t BufferPool::outstanding_bytes() const {
  MutexLock lock(&mutex_);
  return outstanding_bytes_;
}

int BufferPool::outstanding() const {
  MutexLock lock(&mutex_);
  return outstanding_;
}

int64_t BufferPool::idle_bytes() const {
  MutexLock lock(&mutex_);
  return idle_bytes_;
}

}  // namespace convgrad
