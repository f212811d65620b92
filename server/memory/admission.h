// `AdmissionBytes` computes the bytes that a call reserves before the server
// reads its message.
//
// Thread-safe: free functions without state.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/core/tensor_descriptor.h"
#include "server/memory/buffer_pool.h"

namespace convgrad {

// Bytes for the head of a message and the bookkeeping of a call. In practice
// they are a few KiB.
inline constexpr int64_t kCallOverheadBytes = int64_t{64} << 10;

// Returns the most bytes that a call with `payload_bytes` in its request holds
// until its operands are copied: the message, and aligned copies of it, which
// take up to 1/8 more (BufferPool::CapacityFor). Requires: 0 <= payload_bytes <
// 2^60.
inline int64_t AdmissionBytes(int64_t payload_bytes) {
  return payload_bytes + payload_bytes / 8 * 9 + kCallOverheadBytes;
}

// Returns the largest payload_bytes whose AdmissionBytes are within `capacity`;
// 0 if there is none.
inline int64_t LargestAdmissible(int64_t capacity) {
  return capacity <= kCallOverheadBytes
             ? 0
             : (capacity - kCallOverheadBytes) / 17 * 8;
}

// Sums of sizes saturate at this value, which is above any budget. The size of
// each validated descriptor is below 2^63, but their sum may not be.
inline constexpr int64_t kUncountableBytes = int64_t{1} << 60;

// Returns the packed bytes of a tensor, or kUncountableBytes.
inline int64_t CountableBytes(const TensorDescriptor& tensor) {
  return ByteSize(tensor).value_or(kUncountableBytes);
}

// Returns `sum` plus the bytes that a pool takes for `size` bytes. Requires:
// neither is negative.
inline int64_t AddCapacity(int64_t sum, int64_t size) {
  if (size >= kUncountableBytes) return kUncountableBytes;
  return std::min(kUncountableBytes, sum + BufferPool::CapacityFor(size));
}

}  // namespace convgrad
