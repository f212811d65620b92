// `HeapBytes` counts the memory in use in this process.
#pragma once

#include <malloc.h>

#include <cstdint>

namespace convgrad {

// Returns the bytes that malloc has allocated. Sanitizers replace malloc, which
// then has none.
inline int64_t HeapBytes() {
  const struct mallinfo2 now = mallinfo2();
  return static_cast<int64_t>(now.uordblks + now.hblkhd);
}

}  // namespace convgrad
