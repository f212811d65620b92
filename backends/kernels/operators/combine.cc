#include "backends/kernels/operators/combine.h"

#include <algorithm>

#include "backends/kernels/operators/element_runs.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/kernels/operators/combine.cc"
#include <hwy/foreach_target.h>

#include "backends/kernels/operators/channel_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convgrad {
namespace HWY_NAMESPACE {
namespace {

// Returns dy, halved where a and b are equal.
HWY_INLINE auto Shared(auto d, auto dy, auto a, auto b) {
  return hn::IfThenElse(hn::Eq(a, b), hn::Mul(dy, hn::Set(d, 0.5f)), dy);
}

template <Combination kCombination>
HWY_INLINE auto Combined2(auto d, auto a, auto b) {
  if constexpr (kCombination == Combination::kAdd) return hn::Add(a, b);
  if constexpr (kCombination == Combination::kAddRelu) {
    return Rectify<Activation::kRelu>(d, hn::Add(a, b));
  }
  if constexpr (kCombination == Combination::kSub) return hn::Sub(a, b);
  if constexpr (kCombination == Combination::kMul) return hn::Mul(a, b);
  if constexpr (kCombination == Combination::kDiv) return hn::Div(a, b);
  // A NaN in b compares as not below a, and so replaces a.
  if constexpr (kCombination == Combination::kMaximum) {
    const auto takes_a = hn::Or(hn::Gt(a, b), hn::IsNaN(a));
    return hn::IfThenElse(takes_a, a, b);
  }
  if constexpr (kCombination == Combination::kMinimum) {
    const auto takes_a = hn::Or(hn::Lt(a, b), hn::IsNaN(a));
    return hn::IfThenElse(takes_a, a, b);
  }
  if constexpr (kCombination == Combination::kPrelu) {
    return hn::IfThenElse(hn::Gt(a, hn::Zero(d)), a, hn::Mul(a, b));
  }
  const auto one = hn::Set(d, 1.0f);
  if constexpr (kCombination == Combination::kEq) {
    return hn::IfThenElseZero(hn::Eq(a, b), one);
  }
  if constexpr (kCombination == Combination::kLt) {
    return hn::IfThenElseZero(hn::Lt(a, b), one);
  }
  if constexpr (kCombination == Combination::kLe) {
    return hn::IfThenElseZero(hn::Le(a, b), one);
  }
  if constexpr (kCombination == Combination::kGt) {
    return hn::IfThenElseZero(hn::Gt(a, b), one);
  }
  if constexpr (kCombination == Combination::kGe) {
    return hn::IfThenElseZero(hn::Ge(a, b), one);
  }
  if constexpr (kCombination == Combination::kIfNotZero) {
    // Not Ne, which is false for NaN with AVX-512.
    return hn::IfThenZeroElse(hn::Eq(b, hn::Zero(d)), a);
  }
  if constexpr (kCombination == Combination::kIfZero) {
    return hn::IfThenElseZero(hn::Eq(b, hn::Zero(d)), a);
  }
}

template <Combination kCombination>
HWY_INLINE auto Combined3(auto d, auto dy, auto a, auto b) {
  if constexpr (kCombination == Combination::kWhere) {
    const auto chosen = hn::IfThenElse(hn::Eq(dy, hn::Zero(d)), b, a);
    return hn::IfThenElse(hn::IsNaN(dy), dy, chosen);
  }
  if constexpr (kCombination == Combination::kDivisorGradient) {
    return hn::Neg(hn::Mul(dy, hn::Div(hn::Div(a, b), b)));
  }
  if constexpr (kCombination == Combination::kNotLessGradient) {
    return hn::IfThenZeroElse(hn::Lt(a, b), Shared(d, dy, a, b));
  }
  if constexpr (kCombination == Combination::kNotGreaterGradient) {
    return hn::IfThenZeroElse(hn::Gt(a, b), Shared(d, dy, a, b));
  }
  if constexpr (kCombination == Combination::kPreluGradient) {
    return hn::IfThenElse(hn::Gt(a, hn::Zero(d)), dy, hn::Mul(dy, b));
  }
  if constexpr (kCombination == Combination::kSlopeGradient) {
    return hn::IfThenZeroElse(hn::Gt(a, hn::Zero(d)), hn::Mul(dy, a));
  }
}

template <Combination kCombination>
struct Op {
  // Returns the combination of the elements at `i`.
  template <class T>
  static HWY_INLINE auto At(auto d, const T* dy, const T* a, auto b, size_t i) {
    const auto left = LoadElements(d, a + i);
    if constexpr (IsOfThree(kCombination)) {
      return Combined3<kCombination>(d, LoadElements(d, dy + i), left, b);
    } else {
      return Combined2<kCombination>(d, left, b);
    }
  }
};

// Contiguous rows of elements.
template <class T>
struct Rows {
  const T* dy;
  const T* a;
  const T* b;
  T* y;
  size_t count;
  size_t pitch;
};

template <bool kStream, class Op, class T>
void CombineElements(const Rows<T>& rows) {
  ForVectors(rows.count * rows.pitch, [&](auto d, size_t i) HWY_ATTR {
    const auto value =
        Op::At(d, rows.dy, rows.a, LoadElements(d, rows.b + i), i);
    StoreElements<kStream>(d, value, rows.y + i);
  });
}

template <bool kStream, class Op, class T>
void CombineNumbers(const Rows<T>& rows, const float* numbers) {
  ForVectors(rows.pitch, [&](auto d, size_t c) HWY_ATTR {
    const auto b = hn::LoadU(d, numbers + c);
    for (size_t at = c; at < rows.count * rows.pitch; at += rows.pitch) {
      StoreElements<kStream>(d, Op::At(d, rows.dy, rows.a, b, at), rows.y + at);
    }
  });
}

template <bool kStream, class Op, class T>
void CombineRows(const Rows<T>& rows, const float* numbers) {
  if (numbers == nullptr) return CombineElements<kStream, Op>(rows);
  CombineNumbers<kStream, Op>(rows, numbers);
}

template <class Op, class T>
void CombineRun(const ChannelBlocks& blocks, const Combined& tensors,
                const RowRun& run) {
  const float* const numbers = tensors.b != nullptr
                                   ? nullptr
                                   : tensors.numbers +
                                         run.image * tensors.image_stride +
                                         run.block_index * blocks.block;
  auto* const y = static_cast<T*>(tensors.y);
  const int64_t step = numbers == nullptr ? run.rows : RowsOfMap(blocks);
  Streamed(blocks, y, [&](auto stream) HWY_ATTR {
    for (int64_t row = 0; row < run.rows; row += step) {
      const int64_t at = run.offset + row * blocks.block;
      const Rows<T> rows = {Moved<const T>(tensors.dy, at),
                            Moved<const T>(tensors.a, at),
                            Moved<const T>(tensors.b, at),
                            y + at,
                            static_cast<size_t>(std::min(step, run.rows - row)),
                            static_cast<size_t>(blocks.block)};
      CombineRows<stream(), Op>(rows, numbers);
    }
  });
}

template <Combination... kCombinations>
struct List {};
using Combinations =
    List<Combination::kAdd, Combination::kAddRelu, Combination::kSub,
         Combination::kMul, Combination::kDiv, Combination::kMaximum,
         Combination::kMinimum, Combination::kPrelu, Combination::kEq,
         Combination::kLt, Combination::kLe, Combination::kGt, Combination::kGe,
         Combination::kIfNotZero, Combination::kIfZero, Combination::kWhere,
         Combination::kDivisorGradient, Combination::kNotLessGradient,
         Combination::kNotGreaterGradient, Combination::kPreluGradient,
         Combination::kSlopeGradient>;

template <class T, Combination... kCombinations>
void CombineAs(List<kCombinations...>, const ChannelBlocks& blocks,
               Combination combination, const Combined& tensors,
               const RowRun& run) {
  ((kCombinations == combination
        ? CombineRun<Op<kCombinations>, T>(blocks, tensors, run)
        : void()),
   ...);
}

void CombineAny(Combination combination, const ChannelBlocks& blocks,
                const Combined& tensors, const RowRun& run) {
  WithElements(blocks.dtype, [&](auto* element) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(element)>;
    CombineAs<T>(Combinations(), blocks, combination, tensors, run);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace convgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convgrad {
namespace {

HWY_EXPORT(CombineAny);

}  // namespace

void Combine(const ChannelBlocks& blocks, Combination combination,
             const Combined& tensors, RunParts run) {
  float zero = 0, of_zeros = 0;
  const Combined zeros = {.a = &zero, .b = &zero, .y = &of_zeros, .dy = &zero};
  const auto kernel = [combination](const auto&... arguments) {
    HWY_DYNAMIC_DISPATCH(CombineAny)(combination, arguments...);
  };
  const bool has_same_numbers =
      tensors.image_stride == 0 && blocks.block_count() == 1;
  const ChannelBlocks cut =
      tensors.b != nullptr || has_same_numbers ? InOnePlane(blocks) : blocks;
  RunOverRows(blocks, cut, kernel, Written<Combined>{tensors, tensors.y},
              Written<Combined>{zeros, zeros.y}, run);
}

}  // namespace convgrad
#endif  // HWY_ONCE
