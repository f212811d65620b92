#include "backends/onednn/library/onednn_reduction.h"

#include "backends/kernels/operators/channel_sums.h"
#include "backends/onednn/library/onednn_loop_nest.h"

namespace convgrad::onednn {
namespace {

// A run of fewer elements is slow to sum alone.
constexpr int64_t kShortRun = 16;

}  // namespace

BiasReduction::BiasReduction(const TensorDescriptor& grad, const Dims& bias) {
  StridedLoops loops = LoopsInMemory(grad.dims, Strides(grad),
                                     BroadcastStrides(bias, grad.dims));
  const auto is_summed = [](const StridedLoop& loop) {
    return loop.destination_stride == 0;
  };
  int64_t block = 1;
  while (block < kShortRun && !loops.empty() &&
         (!is_summed(loops.back()) || loops.back().extent < kShortRun)) {
    const StridedLoop& loop = loops.back();
    block *= loop.extent;
    (is_summed(loop) ? summed_ : kept_).push_back(loop);
    loops.pop_back();
  }
  int64_t rows = 1;
  if (!loops.empty() && is_summed(loops.back())) {
    rows = loops.back().extent;
    loops.pop_back();
  }
  int64_t channels = block;
  for (StridedLoop& loop : loops) {
    channels *= loop.extent;
    loop.source_stride /= rows;
    (is_summed(loop) ? summed_ : kept_).push_back(loop);
  }
  inner_ = {1, channels, rows, block, grad.dtype};
}

int64_t BiasReduction::scratch_bytes() const {
  return (inner_.channels + SumScratch(inner_, 1)) * int64_t{sizeof(double)};
}

void BiasReduction::Run(const void* grad, float scale, DataType dtype,
                        void* result, void* scratch, RunParts run) const {
  auto* sums = static_cast<double*>(scratch);
  SumTerms(inner_, {.a = grad}, sums + inner_.channels, run, sums, nullptr);
  ForEachStep(summed_, 0, 0, [&](int64_t first, int64_t) {
    if (first == 0) return;
    ForEachStep(kept_, 0, 0,
                [&](int64_t at, int64_t) { sums[at] += sums[first + at]; });
  });
  const int64_t size = ByteSizeOf(dtype);
  ForEachStep(kept_, 0, 0, [&](int64_t at, int64_t to) {
    const double sum = sums[at];
    // A scale other than 1 multiplies in f32; an unscaled sum rounds once.
    const double value =
        scale == 1 ? sum : static_cast<double>(static_cast<float>(sum) * scale);
    StoreRounded(dtype, value, static_cast<std::byte*>(result) + to * size);
  });
}

}  // namespace convgrad::onednn
