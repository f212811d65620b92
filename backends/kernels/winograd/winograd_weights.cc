#include <algorithm>
#include <atomic>

#include "backends/core/checked_math.h"
#include "backends/kernels/winograd/winograd.h"
#include "backends/kernels/winograd/winograd_blocks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/kernels/winograd/winograd_weights.cc"
#include <hwy/foreach_target.h>

#include "backends/kernels/winograd/winograd_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convgrad::winograd {
namespace HWY_NAMESPACE {
namespace {

// Multiplies three elements by 2G, twice what the definition has: so nothing
// is divided, and subnormal weights stay exact.
template <class V>
HWY_INLINE void TransformTaps(const V& a, const V& b, const V& c, int step,
                              V* to) {
  const V sum = hn::Add(a, c);
  to[0] = hn::Add(a, a);
  to[step] = hn::Add(sum, b);
  to[2 * step] = hn::Sub(sum, b);
  to[3 * step] = hn::Add(c, c);
}

// Writes the transpose of 4x4 floats; strides are those between rows.
HWY_INLINE void Transpose4x4(const float* from, int64_t from_stride, float* to,
                             int64_t to_stride) {
#if HWY_TARGET == HWY_SCALAR
  for (int64_t i = 0; i < 16; ++i) {
    to[i % 4 * to_stride + i / 4] = from[i / 4 * from_stride + i % 4];
  }
#else
  const hn::FixedTag<float, 4> d;
  const auto a = hn::LoadU(d, from);
  const auto b = hn::LoadU(d, from + from_stride);
  const auto c = hn::LoadU(d, from + 2 * from_stride);
  const auto e = hn::LoadU(d, from + 3 * from_stride);
  const auto lower_ac = hn::InterleaveLower(d, a, c);
  const auto lower_be = hn::InterleaveLower(d, b, e);
  const auto upper_ac = hn::InterleaveUpper(d, a, c);
  const auto upper_be = hn::InterleaveUpper(d, b, e);
  hn::Store(hn::InterleaveLower(d, lower_ac, lower_be), d, to);
  hn::Store(hn::InterleaveUpper(d, lower_ac, lower_be), d, to + to_stride);
  hn::Store(hn::InterleaveLower(d, upper_ac, upper_be), d, to + 2 * to_stride);
  hn::Store(hn::InterleaveUpper(d, upper_ac, upper_be), d, to + 3 * to_stride);
#endif
}

// Transformed weights lie as [position][panel][depth][input channel][output
// channel], with two blocks of output channels in a panel, or one in the last.
template <int kBlock>
class Transform {
 public:
  Transform(const Weights& weights, float* to)
      : weights_(weights),
        to_(to),
        out_(weights.is_turned ? weights.in_channels : weights.out_channels),
        in_(weights.is_turned ? weights.out_channels : weights.in_channels),
        out_blocks_(PassOutBlocks(weights)),
        in_blocks_((in_ + kBlock - 1) / kBlock),
        in_planes_(weights.kernel_depth * in_blocks_),
        out_stride_(9 * weights.kernel_depth *
                    (weights.is_turned ? 1 : weights.in_channels)),
        in_stride_(9 * weights.kernel_depth *
                   (weights.is_turned ? weights.in_channels : 1)) {}

  // Transforms the kernels of one of the blocks of the pass's output channels
  // and one of the planes of its input. Returns whether they are usable.
  bool Run(int64_t out_block, int64_t in_plane) const {
    const Tag<kBlock> d;
    Magnitudes<kBlock> magnitudes;
    // [input channel][tap][output channel]
    alignas(64) float kernels[kBlock * 9 * kBlock];
    const int64_t first_out = (weights_.first_out_block + out_block) * kBlock;
    Gather(first_out, in_plane, kernels);
    alignas(64) float scales[kBlock];
    std::fill_n(scales, kBlock, 1.0F);
    if (weights_.scales != nullptr) {
      std::copy_n(weights_.scales + first_out,
                  std::min<int64_t>(kBlock, out_ - first_out), scales);
    }
    const int64_t stride =
        PositionStride(out_blocks_ * in_planes_ * kBlock, kBlock);
    const int64_t first = out_block / 2 * 2;  // of the panel
    const int64_t width = std::min<int64_t>(out_blocks_ - first, 2) * kBlock;
    float* to = to_ + first * in_planes_ * kBlock * kBlock +
                in_plane * kBlock * width + (out_block - first) * kBlock;
    for (int c = 0; c < kBlock; ++c, to += width) {
      for (size_t lane = 0; lane < kBlock; lane += hn::Lanes(d)) {
        Vector<kBlock> taps[9], rows[12], positions[kPositions];
        for (int k = 0; k < 9; ++k) {
          taps[k] = hn::Mul(hn::Load(d, kernels + (c * 9 + k) * kBlock + lane),
                            hn::Load(d, scales + lane));
          magnitudes.Note(taps[k]);
        }
        for (int j = 0; j < 3; ++j) {
          TransformTaps(taps[j], taps[3 + j], taps[6 + j], 3, rows + j);
        }
        for (int i = 0; i < 4; ++i) {
          TransformTaps(rows[3 * i], rows[3 * i + 1], rows[3 * i + 2], 1,
                        positions + 4 * i);
        }
        for (int p = 0; p < kPositions; ++p) {
          hn::Store(positions[p], d, to + p * stride + lane);
        }
      }
    }
    return magnitudes.AreUsable();
  }

 private:
  // Copies the kernels to [input channel][tap][output channel].
  void Gather(int64_t first_out, int64_t in_plane, float* kernels) const {
    const int64_t first_in = in_plane % in_blocks_ * kBlock;
    const int64_t depth = in_plane / in_blocks_;
    const float* from =
        weights_.values + first_out * out_stride_ + first_in * in_stride_ +
        9 * (weights_.is_turned ? weights_.kernel_depth - 1 - depth : depth);
    const int64_t outs = std::min<int64_t>(kBlock, out_ - first_out);
    const int64_t ins = std::min<int64_t>(kBlock, in_ - first_in);
    if (outs < kBlock || ins < kBlock) {
      GatherSome(from, outs, ins, kernels);
      return;
    }
    if (!weights_.is_turned && in_stride_ == 9) {
      for (int64_t o = 0; o < kBlock; o += 4, from += 4 * out_stride_) {
        for (int64_t i = 0; i < kBlock * 9; i += 4) {
          Transpose4x4(from + i, out_stride_, kernels + i * kBlock + o, kBlock);
        }
      }
      return;
    }
    // The first tap is the last one of a turned kernel.
    const int64_t step = weights_.is_turned ? -kBlock : kBlock;
    for (int64_t c = 0; c < kBlock; ++c, from += in_stride_) {
      float* to = kernels + (c * 9 + (weights_.is_turned ? 8 : 0)) * kBlock;
      for (int64_t o = 0; o < kBlock; o += 4) {
        const float* rows = from + o * out_stride_;
        Transpose4x4(rows, out_stride_, to + o, step);
        Transpose4x4(rows + 4, out_stride_, to + 4 * step + o, step);
        for (int64_t i = 0; i < 4; ++i) {
          to[8 * step + o + i] = rows[i * out_stride_ + 8];
        }
      }
    }
  }

  // Does the same where the weights end.
  void GatherSome(const float* from, int64_t outs, int64_t ins,
                  float* kernels) const {
    std::fill_n(kernels, kBlock * 9 * kBlock, 0.0F);
    for (int64_t o = 0; o < outs; ++o) {
      for (int64_t c = 0; c < ins; ++c) {
        const float* taps = from + o * out_stride_ + c * in_stride_;
        for (int k = 0; k < 9; ++k) {
          kernels[(c * 9 + k) * kBlock + o] =
              taps[weights_.is_turned ? 8 - k : k];
        }
      }
    }
  }

  const Weights& weights_;
  float* const to_;
  const int64_t out_, in_;  // channels of the pass
  const int64_t out_blocks_, in_blocks_, in_planes_;
  const int64_t out_stride_, in_stride_;
};

bool TransformBlock(const Weights& weights, int64_t out_block, int64_t in_plane,
                    float* to) {
  return weights.block == 16
             ? Transform<16>(weights, to).Run(out_block, in_plane)
             : Transform<8>(weights, to).Run(out_block, in_plane);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace convgrad::winograd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convgrad::winograd {
namespace {

HWY_EXPORT(TransformBlock);

}  // namespace

bool TransformWeights(const Weights& weights, float* transformed,
                      RunThreadParts run) {
  std::atomic<bool> is_usable = true;
  const int64_t out_blocks = PassOutBlocks(weights);
  const int64_t in_planes =
      weights.kernel_depth *
      CeilDiv(weights.is_turned ? weights.out_channels : weights.in_channels,
              weights.block);
  const int64_t rows = weights.is_turned ? in_planes : out_blocks;
  const int64_t columns = weights.is_turned ? out_blocks : in_planes;
  // In the order of the weights in memory.
  run(rows, [&](int64_t row, int64_t) {
    for (int64_t column = 0; column < columns; ++column) {
      const int64_t out = weights.is_turned ? column : row;
      const int64_t in = weights.is_turned ? row : column;
      if (!HWY_DYNAMIC_DISPATCH(TransformBlock)(weights, out, in,
                                                transformed)) {
        is_usable.store(false, std::memory_order_relaxed);
      }
    }
  });
  return is_usable;
}

}  // namespace convgrad::winograd
#endif  // HWY_ONCE
