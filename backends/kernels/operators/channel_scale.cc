#include "backends/kernels/operators/channel_scale.h"

#include <algorithm>

#include "backends/kernels/operators/channel_rows.h"
#include "backends/kernels/operators/channel_sums.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/kernels/operators/channel_scale.cc"
#include <hwy/foreach_target.h>

#include "backends/kernels/operators/channel_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convgrad {
namespace HWY_NAMESPACE {
namespace {

template <class T>
struct Rows {
  const T* x;
  const T* addend;
  T* y;
  size_t count;
  size_t pitch;
};

template <bool kAddend, Activation kActivation, bool kStream, class T>
void ScaleRows(const Rows<T>& rows, const ChannelScale& numbers) {
  ForVectors(rows.pitch, [&](auto d, size_t c) HWY_ATTR {
    const auto center = hn::LoadU(d, numbers.center + c);
    const auto scale = hn::LoadU(d, numbers.scale + c);
    const auto shift = hn::LoadU(d, numbers.shift + c);
    for (size_t at = c; at < rows.count * rows.pitch; at += rows.pitch) {
      const auto x = hn::Sub(LoadElements(d, rows.x + at), center);
      auto y = hn::MulAdd(x, scale, shift);
      if constexpr (kAddend) y = hn::Add(y, LoadElements(d, rows.addend + at));
      StoreElements<kStream>(d, Rectify<kActivation>(d, y), rows.y + at);
    }
  });
}

template <bool kStream, class T>
void ScaleRowsAs(Activation activation, const Rows<T>& rows,
                 const ChannelScale& numbers) {
  WithRectifier(activation, [&](auto kind) HWY_ATTR {
    if (rows.addend != nullptr) {
      return ScaleRows<true, kind(), kStream>(rows, numbers);
    }
    ScaleRows<false, kind(), kStream>(rows, numbers);
  });
}

template <class T>
void ScaleRun(const ChannelBlocks& blocks, const ChannelScale& numbers,
              const ChannelScaleTensors& tensors, const RowRun& run) {
  const int64_t first =
      run.image * numbers.image_stride + run.block_index * blocks.block;
  const ChannelScale own{numbers.center + first, numbers.scale + first,
                         numbers.shift + first};
  const auto* x = static_cast<const T*>(tensors.x);
  auto* y = static_cast<T*>(tensors.y);
  const int64_t step = RowsOfMap(blocks);
  Streamed(blocks, y, [&](auto stream) HWY_ATTR {
    for (int64_t row = 0; row < run.rows; row += step) {
      const int64_t at = run.offset + row * blocks.block;
      const auto count = static_cast<size_t>(std::min(step, run.rows - row));
      ScaleRowsAs<stream(), T>(
          tensors.activation,
          {x + at, Moved<const T>(tensors.addend, at), y + at, count,
           static_cast<size_t>(blocks.block)},
          own);
    }
  });
}

void Scale(const ChannelBlocks& blocks, const ChannelScale& numbers,
           const ChannelScaleTensors& tensors, const RowRun& run) {
  WithElements(blocks.dtype, [&](auto* element) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(element)>;
    ScaleRun<T>(blocks, numbers, tensors, run);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace convgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convgrad {
namespace {

HWY_EXPORT(Scale);

}  // namespace

void ScaleChannels(const ChannelBlocks& blocks, const ChannelScale& numbers,
                   const ChannelScaleTensors& tensors, RunParts run) {
  const MemoryParts parts(blocks);
  run(parts.count(), [&](int64_t part) {
    parts.ForEachRun(part, [&](const RowRun& rows) {
      HWY_DYNAMIC_DISPATCH(Scale)(blocks, numbers, tensors, rows);
    });
  });
}

void SumChannels(const ChannelBlocks& blocks, const void* a, const void* b,
                 double* scratch, RunParts run, ChannelSums sums) {
  double* center = scratch + SumScratch(blocks);
  std::fill_n(center, blocks.padded_channels(), 0.0);
  SumTerms(blocks, {.a = a, .b = b, .center = center}, scratch, run, sums.sum,
           sums.product);
}

}  // namespace convgrad
#endif  // HWY_ONCE
