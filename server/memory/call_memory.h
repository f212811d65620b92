// `CallMemory` joins the budget that counts bytes and the pool that holds them.
// Free buffers may take the unused bytes of the budget. If a call takes these
// bytes, the pool first frees the buffers.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "server/memory/buffer_pool.h"
#include "server/memory/memory_budget.h"

namespace convgrad {

// `CallMemory` is thread-safe. Owners share it, because gRPC may free a
// response's slices, and their buffers, after the server object is destroyed.
struct CallMemory {
  CallMemory(int64_t capacity_bytes, int max_waiters, int64_t max_idle_bytes,
             MemoryBudget::Executor executor,
             std::shared_ptr<MemoryPinner> pinner = nullptr,
             double client_share = 1)
      : budget(capacity_bytes, max_waiters, std::move(executor), client_share,
               [this] { pool.Release(); }),
        pool(max_idle_bytes, std::move(pinner),
             [this] { return budget.capacity_bytes() - budget.used_bytes(); }) {
  }

  CallMemory(const CallMemory&) = delete;
  CallMemory& operator=(const CallMemory&) = delete;

  MemoryBudget budget;
  BufferPool pool;
  // Payload bytes that a message may have, if the capacity was lowered so that
  // larger ones no longer fit.
  std::atomic<int64_t> largest_message_bytes =
      std::numeric_limits<int64_t>::max();
};

}  // namespace convgrad
