#include "server/machine/idle_heap.h"

#include <malloc.h>

#include <utility>

namespace convgrad {

void IdleHeap::Look(int64_t taken, absl::Time now, absl::Time unused_since) {
  if (std::exchange(taken_, taken) != taken) last_use_ = now;
  if (last_use_ > unused_since) return;
  last_use_ = now;
  malloc_trim(0);
}

}  // namespace convgrad
