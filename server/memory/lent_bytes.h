// `LentBytes` are the bytes of a result that gRPC sends. gRPC may use them
// longer than their call exists.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "server/memory/call_memory.h"

namespace convgrad {

// Buffers and the reservation that pays for them. Members are destroyed from
// the last to the first.
struct LentBuffers {
  std::shared_ptr<CallMemory> memory;
  Reservation reservation;
  std::vector<Buffer> buffers;
};

// The bytes of one result. They stay valid as long as `owner`.
struct LentBytes {
  const std::byte* data = nullptr;
  int64_t size = 0;
  std::shared_ptr<const void> owner;
};

}  // namespace convgrad
