#include "backends/onednn/onednn_reduction.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "backends/onednn/onednn_elements.h"
#include "backends/onednn/onednn_loop_nest.h"

namespace convgrad::onednn {
namespace {

// A bias nearly as large as the output isn't worth a copy of the sums per
// thread: above this many sums one thread does it alone.
constexpr int64_t kMaxPrivateSums = 1 << 18;

// Independent partial sums, so that the additions of a run overlap.
constexpr int kLanes = 8;

template <typename Element>
double SumRun(const Element* grad, int64_t count) {
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane)
      lanes[lane] += Load(grad + i + lane);
  }
  double sum = 0;
  for (double lane : lanes) sum += lane;
  for (; i < count; ++i) sum += Load(grad + i);
  return sum;
}

template <typename Element>
void AddRun(const onednn::Run& run, const Element* grad, double* sums) {
  grad += run.offset[0];
  sums += run.offset[1];
  const int64_t stride = run.stride[1];
  if (stride == 0) {
    *sums += SumRun(grad, run.length);
  } else if (stride == 1) {
    for (int64_t i = 0; i < run.length; ++i) sums[i] += Load(grad + i);
  } else {
    for (int64_t i = 0; i < run.length; ++i) sums[i * stride] += Load(grad + i);
  }
}

LoopNest NestOf(const TensorDescriptor& grad, const Dims& bias) {
  const std::array strides = {Strides(grad), BroadcastStrides(bias, grad.dims)};
  return LoopNest(grad.dims, strides);
}

int64_t Product(const Dims& dims) {
  int64_t product = 1;
  for (int64_t extent : dims) product *= extent;
  return product;
}

}  // namespace

BiasReduction::BiasReduction(TensorDescriptor grad, Dims bias, int threads)
    : grad_(std::move(grad)),
      bias_(std::move(bias)),
      threads_(threads),
      bias_count_(Product(bias_)) {
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
  WithElement(grad_.dtype, [&](auto* element) {
    using Element = std::remove_pointer_t<decltype(element)>;
    NestOf(grad_, bias_).ForEachRun(threads_, [&](const onednn::Run& run) {
      AddRun(run, static_cast<const Element*>(grad),
             sums + run.part * bias_count_);
    });
  });
  const int64_t size = ByteSizeOf(dtype);
  for (int64_t i = 0; i < bias_count_; ++i) {
    double sum = 0;
    for (int part = 0; part < parts_; ++part)
      sum += sums[part * bias_count_ + i];
    // A scale other than 1 multiplies in f32; a plain sum rounds once.
    const double value =
        scale == 1 ? sum : static_cast<double>(static_cast<float>(sum) * scale);
    StoreRounded(dtype, value, static_cast<std::byte*>(result) + i * size);
  }
}

}  // namespace convgrad::onednn
