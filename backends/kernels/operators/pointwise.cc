#include "backends/kernels/operators/pointwise.h"

#include <algorithm>
#include <cstring>

#include "backends/kernels/operators/channel_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/kernels/operators/pointwise.cc"
#include <hwy/foreach_target.h>

#include "backends/kernels/operators/channel_vectors-inl.h"
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convgrad {
namespace HWY_NAMESPACE {
namespace {

// Highway's Exp is wrong above 104 and takes NaN for -Inf: so the exponent is
// never positive, and NaN goes around it.
template <class D>
HWY_INLINE hn::Vec<D> Sigmoid(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1.0f);
  const auto small = hn::Exp(d, hn::Neg(hn::Abs(x)));
  const auto above = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), small, one);
  const auto result = hn::Div(above, hn::Add(one, small));
  return hn::IfThenElse(hn::IsNaN(x), x, result);
}

// One activation each: Of is the function, and Gradient is dy times the
// derivative, by what SavesResult says.
template <Activation kRectifier>
struct Rectified {
  static constexpr Activation kKind = kRectifier;
  template <class D>
  static HWY_INLINE hn::Vec<D> Of(D d, float, hn::Vec<D> x) {
    return Rectify<kKind>(d, x);
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> Gradient(D d, float, hn::Vec<D> dy,
                                        hn::Vec<D> saved) {
    return RectifyGradient<kKind>(d, saved, dy);
  }
};

struct LeakyRelu {
  static constexpr Activation kKind = Activation::kLeakyRelu;
  template <class D>
  static HWY_INLINE hn::Vec<D> Of(D d, float slope, hn::Vec<D> x) {
    const auto below = hn::Mul(x, hn::Set(d, slope));
    return hn::IfThenElse(hn::Gt(x, hn::Zero(d)), x, below);
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> Gradient(D d, float slope, hn::Vec<D> dy,
                                        hn::Vec<D> saved) {
    const auto below = hn::Mul(dy, hn::Set(d, slope));
    return hn::IfThenElse(hn::Gt(saved, hn::Zero(d)), dy, below);
  }
};

struct Logistic {
  static constexpr Activation kKind = Activation::kSigmoid;
  template <class D>
  static HWY_INLINE hn::Vec<D> Of(D d, float, hn::Vec<D> x) {
    return Sigmoid(d, x);
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> Gradient(D d, float, hn::Vec<D> dy,
                                        hn::Vec<D> saved) {
    const auto one = hn::Set(d, 1.0f);
    return hn::Mul(dy, hn::Mul(saved, hn::Sub(one, saved)));
  }
};

struct Silu {
  static constexpr Activation kKind = Activation::kSilu;
  template <class D>
  static HWY_INLINE hn::Vec<D> Of(D d, float, hn::Vec<D> x) {
    return hn::Mul(x, Sigmoid(d, x));
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> Gradient(D d, float, hn::Vec<D> dy,
                                        hn::Vec<D> saved) {
    const auto one = hn::Set(d, 1.0f);
    const auto s = Sigmoid(d, saved);
    const auto tilt = hn::MulAdd(saved, hn::Sub(one, s), one);
    return hn::Mul(dy, hn::Mul(s, tilt));
  }
};

struct Tanh {
  static constexpr Activation kKind = Activation::kTanh;
  template <class D>
  static HWY_INLINE hn::Vec<D> Of(D d, float, hn::Vec<D> x) {
    return hn::Tanh(d, x);
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> Gradient(D d, float, hn::Vec<D> dy,
                                        hn::Vec<D> saved) {
    return hn::Mul(dy, hn::NegMulAdd(saved, saved, hn::Set(d, 1.0f)));
  }
};

template <class... Functions>
struct List {};
using Activations =
    List<Rectified<Activation::kNone>, Rectified<Activation::kRelu>,
         Rectified<Activation::kRelu6>, LeakyRelu, Logistic, Silu, Tanh>;

// What is computed of two vectors a and b, or of a alone.
template <class Function>
struct ActivateOp {
  static constexpr bool kBinary = false;
  float slope;
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, hn::Vec<D> a, hn::Vec<D>) const {
    return Function::Of(d, slope, a);
  }
};

template <class Function>
struct GradientOp {
  static constexpr bool kBinary = true;
  float slope;
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, hn::Vec<D> a, hn::Vec<D> b) const {
    return Function::Gradient(d, slope, a, b);
  }
};

template <class Function>
struct AddOp {
  static constexpr bool kBinary = true;
  float slope;
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, hn::Vec<D> a, hn::Vec<D> b) const {
    return Function::Of(d, slope, hn::Add(a, b));
  }
};

struct MultiplyOp {
  static constexpr bool kBinary = true;
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D, hn::Vec<D> a, hn::Vec<D> b) const {
    return hn::Mul(a, b);
  }
};

template <bool kStream, class Op, class T>
void MapElements(const Op& op, const T* a, const T* b, T* y, size_t count) {
  ForVectors(count, [&](auto d, size_t i) HWY_ATTR {
    const auto left = LoadElements(d, a + i);
    auto right = left;
    if constexpr (Op::kBinary) right = LoadElements(d, b + i);
    StoreElements<kStream>(d, op(d, left, right), y + i);
  });
}

template <class Op>
void MapRun(const ChannelBlocks& blocks, const Op& op, const Operands& tensors,
            const RowRun& run) {
  WithElements(blocks.dtype, [&](auto* element) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(element)>;
    const auto* a = static_cast<const T*>(tensors.a) + run.offset;
    const T* b = a;
    if constexpr (Op::kBinary) {
      b = static_cast<const T*>(tensors.b) + run.offset;
    }
    auto* y = static_cast<T*>(tensors.y) + run.offset;
    const auto count = static_cast<size_t>(run.rows * blocks.block);
    if (StreamsResult(blocks) && FillsVectors(y, blocks.block)) {
      MapElements<true>(op, a, b, y, count);
      hwy::FlushStream();
    } else {
      MapElements<false>(op, a, b, y, count);
    }
  });
}

template <template <class> class Op, class... Functions>
void MapAs(List<Functions...>, const ChannelBlocks& blocks, Pointwise op,
           const Operands& tensors, const RowRun& run) {
  const auto map = [&](Activation kind, auto map_op) HWY_ATTR {
    if (kind == op.activation) MapRun(blocks, map_op, tensors, run);
  };
  (map(Functions::kKind, Op<Functions>{op.negative_slope}), ...);
}

void ActivateRun(const ChannelBlocks& blocks, Pointwise op,
                 const Operands& tensors, const RowRun& run) {
  MapAs<ActivateOp>(Activations(), blocks, op, tensors, run);
}

void GradientRun(const ChannelBlocks& blocks, Pointwise op,
                 const Operands& tensors, const RowRun& run) {
  MapAs<GradientOp>(Activations(), blocks, op, tensors, run);
}

void AddRun(const ChannelBlocks& blocks, Pointwise op, const Operands& tensors,
            const RowRun& run) {
  MapAs<AddOp>(Activations(), blocks, op, tensors, run);
}

void MultiplyRun(const ChannelBlocks& blocks, Pointwise /*op*/,
                 const Operands& tensors, const RowRun& run) {
  MapRun(blocks, MultiplyOp(), tensors, run);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace convgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convgrad {
namespace {

HWY_EXPORT(ActivateRun);
HWY_EXPORT(GradientRun);
HWY_EXPORT(AddRun);
HWY_EXPORT(MultiplyRun);

using RunKernel = void (*)(const ChannelBlocks&, Pointwise, const Operands&,
                           const RowRun&);

void RunAll(const ChannelBlocks& blocks, RunKernel kernel, Pointwise op,
            const Operands& tensors, RunParts run) {
  const MemoryParts parts(blocks);
  run(parts.count(), [&](int64_t part) {
    parts.ForEachRun(
        part, [&](const RowRun& rows) { kernel(blocks, op, tensors, rows); });
  });
}

// Of an activation that makes something of zero.
void ClearPadding(const ChannelBlocks& blocks, void* y, RunParts run) {
  const int64_t size = ByteSizeOf(blocks.dtype);
  const int64_t padding = blocks.padded_channels() - blocks.channels;
  if (padding == 0) return;
  run(blocks.batch, [&](int64_t image) {
    const int64_t end =
        (image + 1) * blocks.padded_channels() * blocks.spatial * size;
    char* last = static_cast<char*>(y) + end;
    for (int64_t row = 0; row < blocks.spatial; ++row) {
      std::memset(last - row * blocks.block * size - padding * size, 0,
                  padding * size);
    }
  });
}

}  // namespace

void Activate(const ChannelBlocks& blocks, Pointwise op, const void* x, void* y,
              RunParts run) {
  RunAll(blocks, HWY_DYNAMIC_DISPATCH(ActivateRun), op, {x, nullptr, y}, run);
  if (op.activation == Activation::kSigmoid) ClearPadding(blocks, y, run);
}

bool SavesResult(Activation activation) {
  return activation == Activation::kRelu || activation == Activation::kRelu6 ||
         activation == Activation::kSigmoid || activation == Activation::kTanh;
}

void RunActivateGradient(const ChannelBlocks& blocks, Pointwise op,
                         const ActivateGradient& tensors, RunParts run) {
  RunAll(blocks, HWY_DYNAMIC_DISPATCH(GradientRun), op,
         {tensors.dy, tensors.saved, tensors.dx}, run);
}

void Add(const ChannelBlocks& blocks, Pointwise op, const Operands& tensors,
         RunParts run) {
  RunAll(blocks, HWY_DYNAMIC_DISPATCH(AddRun), op, tensors, run);
  if (op.activation == Activation::kSigmoid) {
    ClearPadding(blocks, tensors.y, run);
  }
}

void Multiply(const ChannelBlocks& blocks, const Operands& tensors,
              RunParts run) {
  RunAll(blocks, HWY_DYNAMIC_DISPATCH(MultiplyRun), {}, tensors, run);
}

}  // namespace convgrad
#endif  // HWY_ONCE
