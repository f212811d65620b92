// What the heap keeps of memory that was freed.
#pragma once

#include "absl/time/time.h"

namespace convgrad {

// Gives it back to the system while nothing uses it. malloc itself does so at
// the end of a heap alone, and one small piece that stays, a connection's for
// example, holds up all that lies before it. Owned by one thread.
class IdleHeap {
 public:
  // To be called regularly, at `now`. If calls weren't seen to use memory since
  // `unused_since`, gives back what is free, once in that time.
  void Look(bool in_use, absl::Time now, absl::Time unused_since);

 private:
  // When calls last used memory, or free memory was last given back.
  absl::Time last_use_ = absl::InfinitePast();
};

}  // namespace convgrad
