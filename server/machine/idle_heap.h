// What the heap keeps of memory that was freed.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace convgrad {

// Gives it back to the system while nothing uses it. malloc itself does so at
// the end of a heap alone, and one small piece that stays, a connection's for
// example, holds up all that lies before it. Owned by one thread.
class IdleHeap {
 public:
  // To be called regularly, at `now`, with the number of buffers that calls
  // have ever taken. If they took none since `unused_since`, gives back what is
  // free, once in that time.
  void Look(int64_t taken, absl::Time now, absl::Time unused_since);

 private:
  int64_t taken_ = 0;
  // When a call last took a buffer, or free memory was last given back.
  absl::Time last_use_ = absl::InfinitePast();
};

}  // namespace convgrad
