// Runs parallel loops on the OpenMP team that oneDNN uses, so that a worker has
// only one team. Every calling thread has its own team.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace convgrad::onednn {

// Sets the size of the calling thread's team. It must be the same when a
// primitive is made and when it runs, because the library splits the work when
// it makes the primitive.
void UseThreads(int threads);

// Calls body(part, begin, end) once for each of at most `threads` contiguous
// parts of [0, count), on the calling thread's team, and blocks until all have
// ended. The split depends only on count, threads and grain. No part but the
// last is smaller than `grain`.
void ParallelFor(int threads, int64_t count, int64_t grain,
                 absl::FunctionRef<void(int, int64_t, int64_t)> body);

// Returns the number of parts in ParallelFor.
int PartCount(int threads, int64_t count, int64_t grain);

}  // namespace convgrad::onednn
