#include "backends/onednn/library/onednn_reduction.h"

#include <algorithm>
#include <vector>

#include "backends/core/checked_math.h"
#include "backends/onednn/library/onednn_elements.h"
#include "backends/onednn/library/onednn_loop_nest.h"

namespace convgrad::onednn {
namespace {

// Above this many sums one thread computes them alone, because a copy of the
// sums per thread costs too much for a bias nearly as large as the output.
constexpr int64_t kMaxPrivateSums = 1 << 18;

// Number of independent partial sums, so that the additions of a run overlap.
constexpr int kLanes = 8;
static_assert(kBlock % kLanes == 0);

// The elements of a run of grad are contiguous, because grad determines the
// nest's order.
double SumRun(const onednn::Run& run, BlockReader& grad) {
  double lanes[kLanes] = {}, rest = 0;
  for (int64_t begin = 0; begin < run.length; begin += kBlock) {
    const int64_t count = std::min(kBlock, run.length - begin);
    const float* values = grad.Read(run.offset + begin, count);
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += values[i + lane];
    }
    for (; i < count; ++i) rest += values[i];
  }
  double sum = rest;
  for (double lane : lanes) sum += lane;
  return sum;
}

void AddValues(const float* values, int64_t count, int64_t stride,
               double* sums) {
  if (stride == 1) {
    for (int64_t i = 0; i < count; ++i) sums[i] += values[i];
  } else {
    for (int64_t i = 0; i < count; ++i) sums[i * stride] += values[i];
  }
}

void AddRun(const onednn::Run& run, BlockReader& grad, double* sums) {
  sums += run.other;
  const int64_t stride = run.stride;
  if (stride == 0) {
    *sums += SumRun(run, grad);
    return;
  }
  const auto add = [&](int64_t begin, int64_t count) {
    AddValues(grad.Read(run.offset + begin, count), count, stride,
              sums + begin * stride);
  };
  // Most runs are short, and a loop around one block would slow them down.
  if (run.length <= kBlock) return add(0, run.length);
  for (int64_t begin = 0; begin < run.length; begin += kBlock) {
    add(begin, std::min(kBlock, run.length - begin));
  }
}

LoopNest NestOf(const TensorDescriptor& grad, const Dims& bias) {
  return LoopNest(grad.dims, Strides(grad), BroadcastStrides(bias, grad.dims));
}

}  // namespace

BiasReduction::BiasReduction(TensorDescriptor grad, Dims bias, int threads)
    : grad_(std::move(grad)),
      bias_(std::move(bias)),
      threads_(threads),
      bias_count_(*CheckedProduct(bias_)) {
  if (bias_count_ > kMaxPrivateSums) threads_ = 1;
  parts_ = NestOf(grad_, bias_).PartCount(threads_);
}

int64_t BiasReduction::scratch_bytes() const {
  return parts_ * bias_count_ * static_cast<int64_t>(sizeof(double));
}

void BiasReduction::Run(const void* grad, float scale, DataType dtype,
                        void* result, void* scratch) const {
  auto* sums = static_cast<double*>(scratch);
  std::fill_n(sums, parts_ * bias_count_, 0.0);
  std::vector<BlockReader> readers(
      parts_, BlockReader(grad_.dtype, grad, ElementCount(grad_)));
  NestOf(grad_, bias_).ForEachRun(threads_, [&](const onednn::Run& run) {
    AddRun(run, readers[run.part], sums + run.part * bias_count_);
  });
  const int64_t size = ByteSizeOf(dtype);
  for (int64_t i = 0; i < bias_count_; ++i) {
    double sum = 0;
    for (int part = 0; part < parts_; ++part)
      sum += sums[part * bias_count_ + i];
    // A scale other than 1 multiplies in f32; an unscaled sum rounds once.
    const double value =
        scale == 1 ? sum : static_cast<double>(static_cast<float>(sum) * scale);
    StoreRounded(dtype, value, static_cast<std::byte*>(result) + i * size);
  }
}

}  // namespace convgrad::onednn
