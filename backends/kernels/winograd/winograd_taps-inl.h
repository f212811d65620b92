// Transforms the sums of a backward-weight pass to the weights' gradient, for
// one instruction set.
#if defined(BACKENDS_KERNELS_WINOGRAD_TAPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKENDS_KERNELS_WINOGRAD_TAPS_INL_H_
#undef BACKENDS_KERNELS_WINOGRAD_TAPS_INL_H_
#else
#define BACKENDS_KERNELS_WINOGRAD_TAPS_INL_H_
#endif

#include <algorithm>

#include "backends/kernels/winograd/winograd_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convgrad::winograd {
namespace HWY_NAMESPACE {
namespace {

// Multiplies four sums by the transpose of 2G.
template <class V>
HWY_INLINE void TransformSums(const V& a, const V& b, const V& c, const V& e,
                              int step, V* to) {
  const V sum = hn::Add(b, c);
  to[0] = hn::Add(hn::Add(a, a), sum);
  to[step] = hn::Sub(b, c);
  to[2 * step] = hn::Add(hn::Add(e, e), sum);
}

// Writes the taps of one input channel and a vector of output channels.
template <int kBlock>
HWY_INLINE void FinishTaps(const GradientBlocks& blocks, const float* sums,
                           float* taps) {
  const Tag<kBlock> d;
  Vector<kBlock> v[kPositions], rows[12], results[9];
  for (int p = 0; p < kPositions; ++p) {
    v[p] = hn::Load(d, sums + p * blocks.sum_stride);
    for (int64_t piece = 1; piece < blocks.pieces; ++piece) {
      const int64_t at = piece * kPositions + p;
      v[p] = hn::Add(v[p], hn::Load(d, sums + at * blocks.sum_stride));
    }
  }
  for (int j = 0; j < 4; ++j) {
    TransformSums(v[j], v[4 + j], v[8 + j], v[12 + j], 4, rows + j);
  }
  for (int i = 0; i < 3; ++i) {
    TransformSums(rows[4 * i], rows[4 * i + 1], rows[4 * i + 2],
                  rows[4 * i + 3], 1, results + 3 * i);
  }
  for (int k = 0; k < 9; ++k) {
    hn::Store(hn::Mul(results[k], hn::Set(d, 0.25F)), d, taps + k * kBlock);
  }
}

// Writes the gradients of one block of output channels.
template <int kBlock>
void Finish(const Shape& shape, const GradientTensors& tensors,
            int64_t out_block) {
  const GradientBlocks blocks(shape);
  const int64_t first_out = out_block * kBlock;
  const int64_t outs =
      std::min<int64_t>(kBlock, shape.out_channels - first_out);
  // [input channel][tap][output channel]
  alignas(64) float kernels[kBlock * 9 * kBlock];
  for (int64_t plane = 0; plane < shape.in_planes(); ++plane) {
    const float* sums = tensors.sums + (out_block * shape.in_planes() + plane) *
                                           kBlock * kBlock;
    for (int64_t c = 0; c < kBlock; ++c) {
      for (size_t lane = 0; lane < kBlock; lane += hn::Lanes(Tag<kBlock>())) {
        FinishTaps<kBlock>(blocks, sums + c * kBlock + lane,
                           kernels + c * 9 * kBlock + lane);
      }
    }
    const int64_t first_in = plane % shape.in_blocks() * kBlock;
    const int64_t depth = plane / shape.in_blocks();
    const int64_t ins = std::min<int64_t>(kBlock, shape.in_channels - first_in);
    for (int64_t o = 0; o < outs; ++o) {
      const int64_t out = shape.first_out_block * kBlock + first_out + o;
      const float* from = kernels + o;
      for (int64_t c = first_in; c < first_in + ins; ++c) {
        float* to =
            tensors.dw +
            ((out * shape.in_channels + c) * shape.kernel_depth + depth) * 9;
        for (int k = 0; k < 9; ++k, from += kBlock) to[k] = *from;
      }
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace convgrad::winograd
HWY_AFTER_NAMESPACE();

#endif
