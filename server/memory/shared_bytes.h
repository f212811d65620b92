// `SharedBytes` are the bytes of one result. gRPC sends them and may use them
// longer than their call exists.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "server/memory/call_memory.h"

namespace convgrad {

// Buffers with the reservation that pays for them. Members are destroyed from
// the last to the first: the buffers are free before their bytes return to the
// budget.
struct ReservedBuffers {
  std::shared_ptr<CallMemory> memory;
  Reservation reservation;
  std::vector<Buffer> buffers;
};

// The bytes of one result. They stay valid as long as `owner`.
struct SharedBytes {
  const std::byte* data = nullptr;
  int64_t size = 0;
  std::shared_ptr<const void> owner;
};

}  // namespace convgrad
