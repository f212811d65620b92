#include "backends/kernels/operators/pointwise.h"

#include "backends/kernels/operators/element_runs.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/kernels/operators/pointwise.cc"
#include <hwy/foreach_target.h>

#include "backends/kernels/operators/activations-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convgrad {
namespace HWY_NAMESPACE {
namespace {

// Computes a function of two vectors: the operand twice, or dy and the saved
// tensor.
template <class Function>
struct ActivateOp {
  Pointwise numbers;
  HWY_INLINE auto operator()(auto d, auto a, auto /*b*/) const {
    return Function::Of(d, numbers, a);
  }
};

template <class Function>
struct GradientOp {
  Pointwise numbers;
  HWY_INLINE auto operator()(auto d, auto a, auto b) const {
    return Function::Gradient(d, numbers, a, b);
  }
};

template <bool kStream, class Op, class T>
void MapElements(const Op& op, const T* a, const T* b, T* y, size_t count) {
  ForVectors(count, [&](auto d, size_t i) HWY_ATTR {
    const auto value = op(d, LoadElements(d, a + i), LoadElements(d, b + i));
    StoreElements<kStream>(d, value, y + i);
  });
}

template <class Op>
void MapRun(const ChannelBlocks& blocks, const Op& op,
            const ActivateGradient& tensors, const RowRun& run) {
  WithElements(blocks.dtype, [&](auto* element) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(element)>;
    const auto* a = static_cast<const T*>(tensors.dy) + run.offset;
    const auto* b = static_cast<const T*>(tensors.saved) + run.offset;
    auto* y = static_cast<T*>(tensors.dx) + run.offset;
    const auto count = static_cast<size_t>(run.rows * blocks.block);
    Streamed(blocks, y, [&](auto stream) HWY_ATTR {
      MapElements<stream()>(op, a, b, y, count);
    });
  });
}

template <template <class> class Op, class... Functions>
void MapAs(List<Functions...>, Pointwise op, const ChannelBlocks& blocks,
           const ActivateGradient& tensors, const RowRun& run) {
  const auto map = [&](Activation kind, auto map_op) HWY_ATTR {
    if (kind == op.activation) MapRun(blocks, map_op, tensors, run);
  };
  (map(Functions::kKind, Op<Functions>{op}), ...);
}

void ActivateRun(Pointwise op, const ChannelBlocks& blocks,
                 const ActivateGradient& tensors, const RowRun& run) {
  MapAs<ActivateOp>(Activations(), op, blocks, tensors, run);
}

void GradientRun(Pointwise op, const ChannelBlocks& blocks,
                 const ActivateGradient& tensors, const RowRun& run) {
  MapAs<GradientOp>(Activations(), op, blocks, tensors, run);
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

template <class... Functions>
bool SavesResultOf(HWY_NAMESPACE::List<Functions...>, Activation activation) {
  return ((Functions::kKind == activation && Functions::kSavesResult) || ...);
}

template <class Kernel>
void RunAll(const ChannelBlocks& blocks, Kernel kernel, Pointwise op,
            const ActivateGradient& tensors, RunParts run) {
  float zero = 0, of_zero = 0;
  const ActivateGradient zeros = {&zero, &zero, &of_zero};
  RunOverRows(
      blocks, InOnePlane(blocks),
      [&](const auto&... arguments) { kernel(op, arguments...); },
      Written<ActivateGradient>{tensors, tensors.dx},
      Written<ActivateGradient>{zeros, zeros.dx}, run);
}

}  // namespace

void Activate(const ChannelBlocks& blocks, Pointwise op, const void* x, void* y,
              RunParts run) {
  RunAll(blocks, HWY_DYNAMIC_DISPATCH(ActivateRun), op, {x, x, y}, run);
}

void RunActivateGradient(const ChannelBlocks& blocks, Pointwise op,
                         const ActivateGradient& tensors, RunParts run) {
  RunAll(blocks, HWY_DYNAMIC_DISPATCH(GradientRun), op, tensors, run);
}

bool SavesResult(Activation activation) {
  return SavesResultOf(HWY_NAMESPACE::Activations(), activation);
}

bool IsLinear(Activation activation) { return activation >= Activation::kNeg; }

}  // namespace convgrad
#endif  // HWY_ONCE
