// Results on their way out, which may be in use longer than the call that they
// belong to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "server/memory/call_memory.h"

namespace convgrad {

// Buffers and what pays for them. Members in the order that they go last.
struct LentBuffers {
  std::shared_ptr<CallMemory> memory;
  Reservation reservation;
  std::vector<Buffer> buffers;
};

// The bytes of one result, which stay valid as long as `owner`.
struct LentBytes {
  const std::byte* data = nullptr;
  int64_t size = 0;
  std::shared_ptr<const void> owner;
};

}  // namespace convgrad
