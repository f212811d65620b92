// Parallel loops on the OpenMP team that oneDNN uses, so that a worker has one
// team and not two. Every calling thread has a team of its own.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace convgrad::onednn {

// Sets the size of the calling thread's team. The library splits work by it
// when a primitive is made, so it must be the same then and when it runs.
void UseThreads(int threads);

// Calls body(part, begin, end) once for each of at most `threads` contiguous
// parts of [0, count), on the calling thread's team, and waits. How the range
// is split depends on count, threads and grain only. No part but the last is
// smaller than `grain`.
void ParallelFor(int threads, int64_t count, int64_t grain,
                 absl::FunctionRef<void(int, int64_t, int64_t)> body);

// Returns how many parts ParallelFor makes.
int PartCount(int threads, int64_t count, int64_t grain);

}  // namespace convgrad::onednn
