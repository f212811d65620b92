#include "server/idle_heap.h"

#include <malloc.h>

namespace convgrad {

void IdleHeap::Look(bool in_use, absl::Time now, absl::Time unused_since) {
  if (in_use) last_use_ = now;
  if (last_use_ > unused_since) return;
  last_use_ = now;
  malloc_trim(0);
}

}  // namespace convgrad
