// The two halves of the server's memory: how much, and the bytes themselves.
// What nobody uses of the budget may stay in the pool, as free buffers, until
// somebody takes it.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "server/memory/buffer_pool.h"
#include "server/memory/memory_budget.h"

namespace convgrad {

// Thread-safe. Shared: gRPC may let go of a response's slices, and with them of
// its buffers, after the server object is gone.
struct CallMemory {
  CallMemory(int64_t capacity_bytes, int max_waiters, int64_t max_idle_bytes,
             MemoryBudget::Executor executor,
             std::shared_ptr<MemoryPinner> pinner = nullptr,
             double client_share = 1)
      : budget(capacity_bytes, max_waiters, std::move(executor), client_share,
               [this] { pool.ReleaseExcess(); }),
        pool(max_idle_bytes, std::move(pinner),
             [this] { return budget.capacity_bytes() - budget.used_bytes(); }) {
  }

  CallMemory(const CallMemory&) = delete;
  CallMemory& operator=(const CallMemory&) = delete;

  MemoryBudget budget;
  BufferPool pool;
};

}  // namespace convgrad
