#include <algorithm>

#include "backends/kernels/batch_norm.h"
#include "backends/kernels/batch_norm_factors.h"
#include "backends/kernels/channel_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/kernels/batch_norm_gradient.cc"
#include <hwy/foreach_target.h>

#include "backends/kernels/channel_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convgrad {
namespace HWY_NAMESPACE {
namespace {

template <class T>
struct Rows {
  const T* dy;
  const T* x;
  const T* y;
  T* dx;
  T* d_addend;
  size_t count;
  size_t pitch;
};

template <bool kTraining, bool kMask, bool kAddend, bool kStream, class T>
void GradientRows(const Rows<T>& rows, const GradientFactors& factors) {
  ForVectors(rows.pitch, [&](auto d, size_t c) HWY_ATTR {
    const auto scale = hn::LoadU(d, factors.scale + c);
    const auto slope = hn::LoadU(d, factors.slope + c);
    const auto center = hn::LoadU(d, factors.center + c);
    const auto shift = hn::LoadU(d, factors.shift + c);
    for (size_t at = c; at < rows.count * rows.pitch; at += rows.pitch) {
      auto dy = LoadElements(d, rows.dy + at);
      if constexpr (kMask) {
        dy = MaskByResult(d, LoadElements(d, rows.y + at), dy);
      }
      auto dx = hn::Mul(dy, scale);
      if constexpr (kTraining) {
        const auto x = hn::Sub(LoadElements(d, rows.x + at), center);
        dx = hn::MulAdd(dy, scale, hn::MulAdd(x, slope, shift));
      }
      StoreElements<kStream>(d, dx, rows.dx + at);
      if constexpr (kAddend) {
        StoreElements<kStream>(d, dy, rows.d_addend + at);
      }
    }
  });
}

template <bool kTraining, bool kStream, class T>
void GradientRowsAs(const Rows<T>& rows, const GradientFactors& factors) {
  const bool addend = rows.d_addend != nullptr;
  if (rows.y != nullptr) {
    return addend
               ? GradientRows<kTraining, true, true, kStream>(rows, factors)
               : GradientRows<kTraining, true, false, kStream>(rows, factors);
  }
  return addend ? GradientRows<kTraining, false, true, kStream>(rows, factors)
                : GradientRows<kTraining, false, false, kStream>(rows, factors);
}

// The pointer moved by `at` elements; null stays null.
template <class T, class Void>
T* Moved(Void* tensor, int64_t at) {
  return tensor == nullptr ? nullptr : static_cast<T*>(tensor) + at;
}

template <class T>
void GradientRun(const BatchNorm& norm, const BatchNormBackward& tensors,
                 const GradientFactors& factors, const RowRun& run) {
  const int64_t block = norm.blocks.block;
  const int64_t first = run.block_index * block;
  const GradientFactors own{factors.scale + first, factors.slope + first,
                            factors.center + first, factors.shift + first};
  const bool stream =
      StreamsResult(norm.blocks) &&
      FillsVectors(static_cast<const T*>(tensors.dx), block) &&
      FillsVectors(static_cast<const T*>(tensors.d_addend), block);
  const int64_t step = RowsOfMap(norm.blocks);
  for (int64_t row = 0; row < run.rows; row += step) {
    const int64_t at = run.offset + row * block;
    const Rows<T> rows{Moved<const T>(tensors.dy, at),
                       Moved<const T>(tensors.x, at),
                       Moved<const T>(tensors.y, at),
                       Moved<T>(tensors.dx, at),
                       Moved<T>(tensors.d_addend, at),
                       static_cast<size_t>(std::min(step, run.rows - row)),
                       static_cast<size_t>(block)};
    if (!norm.training) {
      GradientRowsAs<false, false>(rows, own);
    } else if (stream) {
      GradientRowsAs<true, true>(rows, own);
    } else {
      GradientRowsAs<true, false>(rows, own);
    }
  }
  if (stream) hwy::FlushStream();
}

void Gradient(const BatchNorm& norm, const BatchNormBackward& tensors,
              const GradientFactors& factors, const RowRun& run) {
  WithElements(norm.blocks.dtype, [&](auto* element) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(element)>;
    GradientRun<T>(norm, tensors, factors, run);
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
  const GradientFactors factors =
      InputGradientFactors(norm, sums, reinterpret_cast<float*>(norm.scratch));
  const MemoryParts parts(norm.blocks);
  run(parts.count(), [&](int64_t part) {
    parts.ForEachRun(part, [&](const RowRun& rows) {
      HWY_DYNAMIC_DISPATCH(Gradient)(norm, tensors, factors, rows);
    });
  });
}

}  // namespace convgrad
#endif  // HWY_ONCE
