// `BufferPool` keeps aligned buffers for reuse, because the page faults of a
// fresh 50 MB allocation cost as much as a convolution of that size.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "backends/core/device.h"
#include "backends/core/mutex.h"

namespace convgrad {

class BufferPool;

// `Buffer` owns bytes aligned to 64 and returns them to its pool when it is
// destroyed. Move-only; the contents are uninitialized. It must not outlive its
// pool. Thread-compatible.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  std::byte* data() const { return block_.data; }
  int64_t size() const { return size_; }

 private:
  friend class BufferPool;
  // Memory of the system.
  struct Block {
    std::byte* data = nullptr;
    int64_t capacity = 0;
    bool is_pinned = false;
  };

  Buffer(BufferPool* pool, const Block& block, int64_t size)
      : pool_(pool), block_(block), size_(size) {}

  BufferPool* pool_ = nullptr;
  Block block_;
  int64_t size_ = 0;
};

// `BufferPool` hands out buffers and keeps free ones. Thread-safe.
class BufferPool {
 public:
  // Returns the bytes of the budget that no call holds now. Called with the
  // pool's lock held, so it must not call the pool.
  using SpareBytes = std::function<int64_t()>;

  // Keeps free buffers of at most `max_idle_bytes` plus the spare bytes, and
  // frees the longest unused ones beyond that. `pinner` pins buffers that are
  // mappings of their own; it may be null.
  explicit BufferPool(
      int64_t max_idle_bytes, std::shared_ptr<MemoryPinner> pinner = nullptr,
      SpareBytes spare_bytes = [] { return int64_t{0}; });
  // Requires: no buffer is in use.
  ~BufferPool();

  // Returns a buffer of `size` bytes (null data if 0). The caller reserves
  // CapacityFor(size) in the budget. Requires: size >= 0.
  // Errors: kResourceExhausted, reason BUSY, if the system has no memory.
  absl::StatusOr<Buffer> Take(int64_t size);

  // Returns the bytes that Take(size) takes: `size` rounded up to one of 8
  // classes per power of two, which is at most 1/8 more above 512 bytes.
  static int64_t CapacityFor(int64_t size);

  // Frees the buffers that exceed the limit after spare bytes were taken, and
  // those that are unused since `time`.
  void Release(absl::Time time = absl::InfinitePast());

  // Changes the limit of free buffers, and frees those beyond it.
  void SetMaxIdle(int64_t bytes);

  // The number of buffers taken since the start.
  int64_t taken() const { return taken_; }
  int64_t outstanding_bytes() const;
  int outstanding() const;
  int64_t idle_bytes() const;

 private:
  friend class Buffer;
  using Block = Buffer::Block;
  struct IdleBlock : Block {
    absl::Time returned;
  };

  void Return(const Block& block);
  // Moves blocks out of `idle_`, from the back: blocks beyond the limit, and
  // blocks returned before `time`.
  std::list<IdleBlock> Trim(absl::Time time)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns a new block; null data if there is no memory.
  Block Allocate(int64_t capacity);
  void Free(const std::list<IdleBlock>& blocks);

  // Returns the most bytes of free buffers; not negative, although calls may
  // hold more than the budget after it was lowered.
  int64_t MostIdle() const;

  std::atomic<int64_t> max_idle_bytes_;
  const std::shared_ptr<MemoryPinner> pinner_;
  const SpareBytes spare_bytes_;
  mutable Mutex mutex_;
  // The last returned block is first.
  std::list<IdleBlock> idle_ ABSL_GUARDED_BY(mutex_);
  int64_t idle_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t outstanding_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int outstanding_ ABSL_GUARDED_BY(mutex_) = 0;
  std::atomic<int64_t> taken_{0};
};

}  // namespace convgrad
