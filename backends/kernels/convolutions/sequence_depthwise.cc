#include <algorithm>

#include "backends/kernels/convolutions/sequence_convolution.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/kernels/convolutions/sequence_depthwise.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace convgrad {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// A block of channels of one image.
struct Block {
  const SequenceShape& shape;
  const float* input;
  const float* weights;  // tap after tap, then the bias
  float* output;
};

// Computes kRows outputs from `begin` on, all with the same taps.
template <int kBlock, int kRows>
HWY_INLINE void SumRows(const Block& at, AxisRange taps, int64_t begin) {
  const hn::CappedTag<float, kBlock> d;
  const SequenceShape& shape = at.shape;
  const int64_t step = shape.axis.stride * kBlock;
  for (size_t lane = 0; lane < kBlock; lane += hn::Lanes(d)) {
    hn::Vec<decltype(d)> sums[kRows];
    const auto bias =
        hn::LoadU(d, at.weights + shape.axis.kernel * kBlock + lane);
    for (auto& sum : sums) sum = bias;
    const int64_t first = shape.axis.FirstOf(begin);
    for (int64_t tap = taps.begin; tap < taps.end; ++tap) {
      const auto w = hn::LoadU(d, at.weights + tap * kBlock + lane);
      const float* from =
          at.input + (first + tap * shape.axis.dilation) * kBlock + lane;
      for (int r = 0; r < kRows; ++r) {
        sums[r] = hn::MulAdd(hn::LoadU(d, from + r * step), w, sums[r]);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      hn::StoreU(sums[r], d, at.output + (begin + r) * kBlock + lane);
    }
  }
}

template <int kBlock>
void ConvolveBlock(const Block& at) {
  constexpr int kRows = 8;
  for (int64_t t = 0; t < at.shape.axis.out;) {
    const AxisRange taps = TapsOf(at.shape.axis, t);
    const int64_t end = EndOfRun(at.shape.axis, taps, t, at.shape.axis.out);
    for (; end - t >= kRows; t += kRows) SumRows<kBlock, kRows>(at, taps, t);
    for (; t < end; ++t) SumRows<kBlock, 1>(at, taps, t);
  }
}

void Convolve(const SequenceShape& shape, const float* input,
              const float* arranged, float* output, int64_t part) {
  const int64_t block = part % shape.in_blocks();
  const Block at = {shape, input + part * shape.axis.in * shape.block,
                    arranged + block * (shape.axis.kernel + 1) * shape.block,
                    output + part * shape.axis.out * shape.block};
  if (shape.block == 16) {
    ConvolveBlock<16>(at);
  } else {
    ConvolveBlock<8>(at);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace convgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convgrad {
namespace {

HWY_EXPORT(Convolve);

// Writes the weights of each block tap after tap, and its bias after them.
void Arrange(const SequenceShape& shape, const SequenceWeights& from,
             float* arranged) {
  const int64_t kernel = shape.axis.kernel, block = shape.block;
  std::fill_n(arranged, DepthwiseFloats(shape), 0.0F);
  for (int64_t c = 0; c < shape.in_channels; ++c) {
    float* to = arranged + c / block * (kernel + 1) * block + c % block;
    for (int64_t tap = 0; tap < kernel; ++tap) {
      to[tap * block] =
          from.weights[c * kernel +
                       (from.is_mirrored ? kernel - 1 - tap : tap)];
    }
    if (from.bias != nullptr) to[kernel * block] = from.bias[c];
  }
}

}  // namespace

int64_t DepthwiseFloats(const SequenceShape& shape) {
  return shape.in_blocks() * shape.block * (shape.axis.kernel + 1);
}

void ConvolveSequencesDepthwise(const SequenceShape& shape, const float* input,
                                const SequenceWeights& weights, RunParts run,
                                float* arranged, float* output) {
  Arrange(shape, weights, arranged);
  run(shape.batch * shape.in_blocks(), [&](int64_t part) {
    HWY_DYNAMIC_DISPATCH(Convolve)
    (shape, input, arranged, output, part);
  });
}

}  // namespace convgrad
#endif  // HWY_ONCE
