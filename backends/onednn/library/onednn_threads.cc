#include "backends/onednn/library/onednn_threads.h"

#include <algorithm>

#include "backends/core/thread_order.h"

// Declares the libgomp functions used here instead of including omp.h, because
// clang has no omp.h of libgomp, and -fopenmp would link a second runtime.
// g++ emits GOMP_parallel for "omp parallel" (gcc.gnu.org/onlinedocs/libgomp,
// "Implementing PARALLEL construct").
// NOLINTBEGIN(readability-identifier-naming): names of libgomp's
extern "C" {
void omp_set_num_threads(int threads);
int omp_get_thread_num();
int omp_get_num_threads();
void GOMP_parallel(void (*body)(void*), void* data, unsigned threads,
                   unsigned flags);
}
// NOLINTEND(readability-identifier-naming)

namespace convgrad::onednn {
namespace {

struct Loop {
  int64_t count;
  int64_t part_size;
  absl::FunctionRef<void(int, int64_t, int64_t)> body;
};

void RunParts(void* data) {
  HandedOver(data);
  const auto& loop = *static_cast<const Loop*>(data);
  // The runtime may provide fewer threads than requested; the parts stay the
  // same.
  for (int part = omp_get_thread_num();; part += omp_get_num_threads()) {
    const int64_t begin = part * loop.part_size;
    if (begin >= loop.count) break;
    loop.body(part, begin, std::min(begin + loop.part_size, loop.count));
  }
  HandedOver(data);
}

int64_t PartSize(int threads, int64_t count, int64_t grain) {
  return std::max(grain, (count + threads - 1) / threads);
}

}  // namespace

void UseThreads(int threads) { omp_set_num_threads(threads); }

int PartCount(int threads, int64_t count, int64_t grain) {
  const int64_t size = PartSize(threads, count, grain);
  return static_cast<int>((count + size - 1) / size);
}

void ParallelFor(int threads, int64_t count, int64_t grain,
                 absl::FunctionRef<void(int, int64_t, int64_t)> body) {
  if (count <= 0) return;
  Loop loop{count, PartSize(threads, count, grain), body};
  if (loop.part_size >= count) {
    body(0, 0, count);
    return;
  }
  // Always uses the whole team, because libgomp creates new threads whenever
  // the size changes.
  HandedOver(&loop);
  GOMP_parallel(&RunParts, &loop, static_cast<unsigned>(threads), 0);
  HandedOver(&loop);
}

}  // namespace convgrad::onednn
