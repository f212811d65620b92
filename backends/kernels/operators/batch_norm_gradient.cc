#include <algorithm>

#include "backends/kernels/operators/batch_norm.h"
#include "backends/kernels/operators/batch_norm_factors.h"
#include "backends/kernels/operators/channel_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/kernels/operators/batch_norm_gradient.cc"
#include <hwy/foreach_target.h>

#include "backends/kernels/operators/channel_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convgrad {
namespace HWY_NAMESPACE {
namespace {

template <class T>
struct Rows {
  const T* dy;
  const T* x;
  T* dx;
  size_t count;
  size_t pitch;
};

// The factors that lead from x to the forward's result, and from dy to dx.
struct Factors {
  ChannelScale forward;
  GradientFactors gradient;
};

template <bool kTraining, Activation kActivation, bool kStream, class T>
void GradientRows(const Rows<T>& rows, const Factors& both) {
  const GradientFactors& factors = both.gradient;
  ForVectors(rows.pitch, [&](auto d, size_t c) HWY_ATTR {
    const auto scale = hn::LoadU(d, factors.scale + c);
    const auto slope = hn::LoadU(d, factors.slope + c);
    const auto down = hn::LoadU(d, factors.down + c);
    const auto center = hn::LoadU(d, factors.center + c);
    const auto shift = hn::LoadU(d, factors.shift + c);
    const auto middle = hn::LoadU(d, both.forward.center + c);
    const auto up = hn::LoadU(d, both.forward.scale + c);
    const auto start = hn::LoadU(d, both.forward.shift + c);
    for (size_t at = c; at < rows.count * rows.pitch; at += rows.pitch) {
      auto dy = LoadElements(d, rows.dy + at);
      if constexpr (kActivation != Activation::kNone) {
        const auto x = hn::Sub(LoadElements(d, rows.x + at), middle);
        const auto y = hn::MulAdd(x, up, start);
        dy = RectifyGradient<kActivation>(d, y, dy);
      }
      auto dx = hn::Mul(dy, scale);
      if constexpr (kTraining) {
        const auto x = hn::Sub(LoadElements(d, rows.x + at), center);
        const auto normal = hn::Mul(x, down);
        dx = hn::MulAdd(dy, scale, hn::MulAdd(normal, slope, shift));
      }
      StoreElements<kStream>(d, dx, rows.dx + at);
    }
  });
}

template <bool kTraining, bool kStream, class T>
void GradientRowsAs(Activation activation, const Rows<T>& rows,
                    const Factors& factors) {
  WithRectifier(activation, [&](auto kind) HWY_ATTR {
    GradientRows<kTraining, kind(), kStream>(rows, factors);
  });
}

// Returns the factors of the block of channels that begins with `first`.
Factors FactorsFrom(const Factors& all, int64_t first) {
  const auto& [forward, gradient] = all;
  return {
      {forward.center + first, forward.scale + first, forward.shift + first},
      {gradient.scale + first, gradient.slope + first, gradient.down + first,
       gradient.center + first, gradient.shift + first}};
}

template <class T>
void GradientRun(const BatchNorm& norm, const BatchNormBackward& tensors,
                 const Factors& factors, const RowRun& run) {
  const int64_t block = norm.blocks.block;
  const Factors own = FactorsFrom(factors, run.block_index * block);
  auto* dx = static_cast<T*>(tensors.dx);
  const int64_t step = RowsOfMap(norm.blocks);
  Streamed(norm.blocks, dx, [&](auto stream) HWY_ATTR {
    for (int64_t row = 0; row < run.rows; row += step) {
      const int64_t at = run.offset + row * block;
      const Rows<T> rows{static_cast<const T*>(tensors.dy) + at,
                         static_cast<const T*>(tensors.x) + at, dx + at,
                         static_cast<size_t>(std::min(step, run.rows - row)),
                         static_cast<size_t>(block)};
      if (norm.training) {
        GradientRowsAs<true, stream()>(tensors.activation, rows, own);
      } else {
        GradientRowsAs<false, false>(tensors.activation, rows, own);
      }
    }
  });
}

void Gradient(const BatchNorm& norm, const BatchNormBackward& tensors,
              const ChannelScale& forward, const GradientFactors& gradient,
              const RowRun& run) {
  WithElements(norm.blocks.dtype, [&](auto* element) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(element)>;
    GradientRun<T>(norm, tensors, {forward, gradient}, run);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace convgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convgrad {
namespace {

HWY_EXPORT(Gradient);

}  // namespace

void RunGradientInput(const BatchNorm& norm, const BatchNormBackward& tensors,
                      BatchNormSums sums, RunParts run) {
  auto* numbers = reinterpret_cast<float*>(norm.scratch);
  const ChannelScale forward = ForwardFactors(norm, numbers);
  const GradientFactors gradient = InputGradientFactors(
      norm, sums, numbers + 3 * norm.blocks.padded_channels());
  const MemoryParts parts(norm.blocks);
  run(parts.count(), [&](int64_t part) {
    parts.ForEachRun(part, [&](const RowRun& rows) {
      HWY_DYNAMIC_DISPATCH(Gradient)(norm, tensors, forward, gradient, rows);
    });
  });
}

}  // namespace convgrad
#endif  // HWY_ONCE
