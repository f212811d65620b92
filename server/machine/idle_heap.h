// `IdleHeap` returns the heap's free memory to the system.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace convgrad {

// malloc returns memory only at the end of a heap, so one small block (a
// connection's, for example) keeps all memory before it. Owned by one thread.
class IdleHeap {
 public:
  // Returns the heap's free memory to the system if calls took no buffer since
  // `unused_since`, once in that time. Call it regularly, at `now`, with the
  // number of buffers that calls have taken since the start.
  void Look(int64_t taken, absl::Time now, absl::Time unused_since);

 private:
  int64_t taken_ = 0;
  // The time when a call last took a buffer, or when the heap was last trimmed.
  absl::Time last_use_ = absl::InfinitePast();
};

}  // namespace convgrad
