#include "backends/onednn/library/onednn_loop_nest.h"

#include <algorithm>
#include <numeric>

#include "backends/onednn/library/onednn_threads.h"

namespace convgrad::onednn {
namespace {

// Smallest part that saves more than it costs to start: a team start takes
// about 5 us, the time for this many elements at 4 GB/s.
constexpr int64_t kGrainElements = 8192;

}  // namespace

LoopNest::LoopNest(const Dims& dims, absl::Span<const Dims> strides)
    : tensors_(static_cast<int>(strides.size())) {
  Dims order(dims.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return strides[0][a] > strides[0][b];
  });
  Dims extents;
  std::array<Dims, kMaxTensors> ordered;
  for (int64_t axis : order) {
    if (dims[axis] == 1) continue;
    bool merges = !extents.empty();
    for (int t = 0; t < tensors_ && merges; ++t) {
      merges = ordered[t].back() == strides[t][axis] * dims[axis];
    }
    if (merges) {
      extents.back() *= dims[axis];
    } else {
      extents.push_back(dims[axis]);
    }
    for (int t = 0; t < tensors_; ++t) {
      if (merges) ordered[t].pop_back();
      ordered[t].push_back(strides[t][axis]);
    }
  }
  if (!extents.empty()) {
    run_length_ = extents.back();
    extents.pop_back();
    for (int t = 0; t < tensors_; ++t) {
      run_stride_[t] = ordered[t].back();
      ordered[t].pop_back();
    }
  }
  extents_ = std::move(extents);
  strides_ = std::move(ordered);
  for (int64_t extent : extents_) outer_count_ *= extent;
}

void LoopNest::Seek(int64_t outer, Run* run) const {
  run->offset = {};
  for (int i = static_cast<int>(extents_.size()) - 1; i >= 0; --i) {
    const int64_t index = outer % extents_[i];
    outer /= extents_[i];
    for (int t = 0; t < tensors_; ++t) {
      run->offset[t] += index * strides_[t][i];
    }
  }
}

bool LoopNest::SplitsRuns(int threads) const {
  return outer_count_ < threads && run_length_ > kGrainElements;
}

int LoopNest::PartCount(int threads) const {
  return SplitsRuns(threads)
             ? onednn::PartCount(threads, run_length_, kGrainElements)
             : onednn::PartCount(
                   threads, outer_count_,
                   std::max<int64_t>(1, kGrainElements / run_length_));
}

void LoopNest::ForEachRun(int threads,
                          absl::FunctionRef<void(const Run&)> body) const {
  Run whole{0, run_length_, {}, run_stride_};
  if (!SplitsRuns(threads)) {
    const int64_t grain = std::max<int64_t>(1, kGrainElements / run_length_);
    ParallelFor(threads, outer_count_, grain,
                [&](int part, int64_t begin, int64_t end) {
                  Run run = whole;
                  run.part = part;
                  for (int64_t outer = begin; outer < end; ++outer) {
                    Seek(outer, &run);
                    body(run);
                  }
                });
    return;
  }
  for (int64_t outer = 0; outer < outer_count_; ++outer) {
    Seek(outer, &whole);
    ParallelFor(threads, run_length_, kGrainElements,
                [&](int part, int64_t begin, int64_t end) {
                  Run run = whole;
                  run.part = part;
                  run.length = end - begin;
                  for (int t = 0; t < tensors_; ++t) {
                    run.offset[t] += begin * run.stride[t];
                  }
                  body(run);
                });
  }
}

}  // namespace convgrad::onednn
