#include "backends/onednn/library/onednn_loop_nest.h"

#include <algorithm>

#include "backends/onednn/library/onednn_threads.h"

namespace convgrad::onednn {

StridedLoops LoopsInMemory(const Dims& dims, const Dims& strides,
                           const Dims& others) {
  StridedLoops loops;
  for (size_t i = 0; i < dims.size(); ++i) {
    loops.push_back({dims[i], strides[i], others[i]});
  }
  std::stable_sort(loops.begin(), loops.end(),
                   [](const StridedLoop& a, const StridedLoop& b) {
                     return a.source_stride > b.source_stride;
                   });
  MergeLoops(&loops);
  return loops;
}

LoopNest::LoopNest(const Dims& dims, const Dims& strides, const Dims& others)
    : loops_(LoopsInMemory(dims, strides, others)) {
  if (!loops_.empty()) {
    run_ = loops_.back();
    loops_.pop_back();
  }
  for (const StridedLoop& loop : loops_) outer_count_ *= loop.extent;
}

Run LoopNest::RunAt(int64_t outer) const {
  Run run = {0, run_.extent, 0, 0, run_.destination_stride};
  for (size_t i = loops_.size(); i-- > 0;) {
    const int64_t index = outer % loops_[i].extent;
    outer /= loops_[i].extent;
    run.offset += index * loops_[i].source_stride;
    run.other += index * loops_[i].destination_stride;
  }
  return run;
}

bool LoopNest::SplitsRuns(int threads) const {
  return outer_count_ < threads && run_.extent > kGrainElements;
}

int LoopNest::PartCount(int threads) const {
  return SplitsRuns(threads)
             ? onednn::PartCount(threads, run_.extent, kGrainElements)
             : onednn::PartCount(
                   threads, outer_count_,
                   std::max<int64_t>(1, kGrainElements / run_.extent));
}

void LoopNest::ForEachRun(int threads,
                          absl::FunctionRef<void(const Run&)> body) const {
  if (!SplitsRuns(threads)) {
    const int64_t grain = std::max<int64_t>(1, kGrainElements / run_.extent);
    ParallelFor(threads, outer_count_, grain,
                [&](int part, int64_t begin, int64_t end) {
                  for (int64_t outer = begin; outer < end; ++outer) {
                    Run run = RunAt(outer);
                    run.part = part;
                    body(run);
                  }
                });
    return;
  }
  for (int64_t outer = 0; outer < outer_count_; ++outer) {
    const Run whole = RunAt(outer);
    ParallelFor(threads, run_.extent, kGrainElements,
                [&](int part, int64_t begin, int64_t end) {
                  body({part, end - begin, whole.offset + begin,
                        whole.other + begin * whole.stride, whole.stride});
                });
  }
}

}  // namespace convgrad::onednn
