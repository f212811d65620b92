// Tells ThreadSanitizer of an order between threads that code it doesn't see
// into (gRPC's queues, libgomp's teams) has made. Nothing in other builds.
#pragma once

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace convgrad {

// What happens before HandedOver(token) happens before what follows a later
// HandedOver(token) on another thread.
inline void HandedOver([[maybe_unused]] void* token) {
#ifdef __SANITIZE_THREAD__
  __tsan_acquire(token);
  __tsan_release(token);
#endif
}

}  // namespace convgrad
