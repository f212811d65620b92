// `IdleHeap` returns the heap's free memory to the system.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace convgrad {

// malloc itself returns memory only at the end of a heap, and one small block,
// a connection's for example, keeps all memory before it. Owned by one thread.
class IdleHeap {
 public:
  // Call it regularly, at `now`, with the number of buffers that calls have
  // ever taken. If calls took none since `unused_since`, it returns the free
  // memory, once in that time.
  void Look(int64_t taken, absl::Time now, absl::Time unused_since);

 private:
  int64_t taken_ = 0;
  // When a call last took a buffer, or free memory was last given back.
  absl::Time last_use_ = absl::InfinitePast();
};

}  // namespace convgrad
