// Informs ThreadSanitizer of an order between threads that uninstrumented code
// (gRPC's queues, libgomp's teams) enforces. Does nothing in other builds.
#pragma once

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace convgrad {

// Everything before HandedOver(token) happens before everything after a later
// HandedOver(token) on another thread.
inline void HandedOver([[maybe_unused]] void* token) {
#ifdef __SANITIZE_THREAD__
  __tsan_acquire(token);
  __tsan_release(token);
#endif
}

}  // namespace convgrad
