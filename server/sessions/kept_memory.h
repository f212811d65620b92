// `KeptMemory` holds the bytes that sessions keep, a share of the server's
// budget.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/core/status.h"
#include "server/memory/call_memory.h"

namespace convgrad {

class KeptMemory;

// `KeptBooking` counts memory as kept that is allocated elsewhere: names,
// programs, replies. The destructor ends it. Move-only; thread-compatible.
class KeptBooking {
 public:
  KeptBooking() = default;
  KeptBooking(KeptBooking&& other) noexcept { *this = std::move(other); }
  KeptBooking& operator=(KeptBooking&& other) noexcept;
  ~KeptBooking();

  // Bytes that count as kept.
  int64_t bytes() const { return bytes_; }

 private:
  friend class KeptMemory;

  std::shared_ptr<KeptMemory> owner_;
  int64_t bytes_ = 0;
  // Pays for the bytes that no other reservation pays for.
  Reservation reservation_;
};

// `KeptBytes` are the bytes of one tensor or tape of a session, or of a change
// that isn't committed yet. The last reader frees them. The bytes are written
// before they are shared and constant afterwards; from then on reads are
// thread-safe.
class KeptBytes {
 public:
  KeptBytes(const KeptBytes&) = delete;
  KeptBytes& operator=(const KeptBytes&) = delete;

  // Aligned to 64 bytes; null if size() is 0.
  std::byte* data() const { return buffer_.data(); }
  int64_t size() const { return buffer_.size(); }
  // The id of these bytes; never 0, and never reused.
  uint64_t id() const { return id_; }

 private:
  friend class KeptMemory;
  KeptBytes(uint64_t id, KeptBooking booking, Buffer buffer);

  const uint64_t id_;
  // Declared before the buffer, so that it is destroyed after it.
  const KeptBooking booking_;
  const Buffer buffer_;
};

// `KeptMemory` allocates kept bytes and counts them. Thread-safe.
class KeptMemory : public std::enable_shared_from_this<KeptMemory> {
 public:
  // Keeps at most `max_bytes` of `memory` at once.
  KeptMemory(std::shared_ptr<CallMemory> memory, int64_t max_bytes)
      : memory_(std::move(memory)), max_bytes_(max_bytes) {}

  // Returns `size` bytes, uninitialized. `*paid` pays for them if it has as
  // many bytes; otherwise the budget does. Requires: size >= 0.
  // Errors: kResourceExhausted, reason LIMIT_EXCEEDED if they never fit, BUSY
  // if they don't fit now.
  absl::StatusOr<std::shared_ptr<KeptBytes>> Take(int64_t size,
                                                  Reservation* paid);

  // Counts `bytes` as kept. `*paid` pays for `unpaid` of them if it has as many
  // bytes; otherwise the budget does. `paid` may be null. Requires: 0 <= unpaid
  // <= bytes.
  // Errors: those of Take.
  absl::StatusOr<KeptBooking> Book(int64_t bytes, int64_t unpaid,
                                   Reservation* paid);

  // Checks whether sessions could ever keep `bytes` (BufferPool::CapacityFor).
  // Errors: kResourceExhausted, reason LIMIT_EXCEEDED.
  absl::Status CheckFits(int64_t bytes) const;

  // Checks whether sessions keep less than the limit, which may have been
  // lowered since.
  // Errors: kResourceExhausted, reason BUSY.
  absl::Status CheckRoom() const;

  // Changes the limit. What is kept beyond it stays.
  void SetMaxBytes(int64_t bytes) { max_bytes_ = bytes; }

  int64_t max_bytes() const { return max_bytes_; }
  int64_t used_bytes() const { return used_bytes_; }
  const std::shared_ptr<CallMemory>& memory() const { return memory_; }

 private:
  friend class KeptBooking;

  absl::Status TooMuch(Reason reason, int64_t bytes, int64_t others) const;

  const std::shared_ptr<CallMemory> memory_;
  std::atomic<int64_t> max_bytes_;
  std::atomic<int64_t> used_bytes_{0};
  std::atomic<uint64_t> last_id_{0};
};

}  // namespace convgrad
