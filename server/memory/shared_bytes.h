// `SharedBytes` are the bytes of one result. gRPC sends them and may use them
// after the end of their call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "server/memory/call_memory.h"

namespace convgrad {

// Buffers and the reservation that pays for them. Members are destroyed from
// the last to the first, so the buffers are freed before their bytes return to
// the budget.
struct ReservedBuffers {
  std::shared_ptr<CallMemory> memory;
  Reservation reservation;
  std::vector<Buffer> buffers;
};

// The bytes of one result. They stay valid as long as `owner`. Several threads
// may read them.
struct SharedBytes {
  const std::byte* data = nullptr;
  int64_t size = 0;
  std::shared_ptr<const void> owner;
};

}  // namespace convgrad
