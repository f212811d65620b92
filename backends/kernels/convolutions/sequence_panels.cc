#include "backends/kernels/convolutions/sequence_panels.h"

#include <algorithm>

namespace convgrad {
namespace {

constexpr int64_t kPanelBlocks = 2;
// Taps of one part of a gradient.
constexpr int64_t kTapsOfPart = 8;

// Weights of a block of input channels, of all taps and one output block.
int64_t WeightsOfBlock(const SequenceShape& shape) {
  return shape.axis.kernel * shape.block * shape.block;
}

int64_t TapGroups(const SequenceShape& shape) {
  return (shape.axis.kernel + kTapsOfPart - 1) / kTapsOfPart;
}

}  // namespace

int64_t SliceOf(const SequenceShape& shape) {
  constexpr int64_t kFloats = 1 << 16;
  return std::max<int64_t>(1, kFloats / (WeightsOfBlock(shape) * kPanelBlocks));
}

SequencePanel::SequencePanel(const SequenceShape& shape, int64_t panel)
    : first_block(panel * kPanelBlocks),
      blocks(std::min(kPanelBlocks, shape.out_blocks() - first_block)),
      weights(first_block * shape.in_blocks() * WeightsOfBlock(shape)) {}

int64_t BiasOffset(const SequenceShape& shape) {
  return shape.out_blocks() * shape.in_blocks() * WeightsOfBlock(shape);
}

int64_t ArrangedFloats(const SequenceShape& shape) {
  return BiasOffset(shape) + shape.out_blocks() * shape.block;
}

void ArrangeWeights(const SequenceShape& shape, const SequenceWeights& from,
                    RunParts run, float* arranged) {
  const int64_t kernel = shape.axis.kernel, block = shape.block;
  const auto weight = [&](int64_t out, int64_t in, int64_t tap) {
    if (out >= shape.out_channels || in >= shape.in_channels) return 0.0F;
    return from.is_mirrored
               ? from.weights[(in * shape.out_channels + out) * kernel +
                              kernel - 1 - tap]
               : from.weights[(out * shape.in_channels + in) * kernel + tap];
  };
  const int64_t in_blocks = shape.in_blocks();
  run(PanelsOf(shape) * in_blocks, [&](int64_t part) {
    const SequencePanel panel(shape, part / in_blocks);
    const int64_t in_block = part % in_blocks;
    float* to = arranged + panel.weights +
                in_block * WeightsOfBlock(shape) * panel.blocks;
    for (int64_t tap = 0; tap < kernel; ++tap) {
      for (int64_t c = in_block * block; c < (in_block + 1) * block; ++c) {
        for (int64_t o = 0; o < panel.blocks * block; ++o) {
          *to++ = weight(panel.first_block * block + o, c, tap);
        }
      }
    }
  });
  float* bias = arranged + BiasOffset(shape);
  std::fill_n(bias, shape.out_blocks() * block, 0.0F);
  if (from.bias != nullptr) std::copy_n(from.bias, shape.out_channels, bias);
}

SequenceGradientPart::SequenceGradientPart(const SequenceShape& shape,
                                           int64_t part) {
  const int64_t groups = TapGroups(shape), group = part % groups;
  taps = {group * kTapsOfPart,
          std::min((group + 1) * kTapsOfPart, shape.axis.kernel)};
  part /= groups;
  in_block = part % shape.in_blocks();
  const SequencePanel panel(shape, part / shape.in_blocks());
  first_block = panel.first_block;
  blocks = panel.blocks;
  sums = panel.weights + in_block * WeightsOfBlock(shape) * blocks;
}

void SequenceGradientPart::Write(const SequenceShape& shape, const float* own,
                                 float* to) const {
  const int64_t block = shape.block;
  const int64_t first_in = in_block * block, first_out = first_block * block;
  const int64_t ins = std::min(block, shape.in_channels - first_in);
  const int64_t outs = std::min(blocks * block, shape.out_channels - first_out);
  for (int64_t o = 0; o < outs; ++o) {
    for (int64_t c = 0; c < ins; ++c) {
      float* row = to + ((first_out + o) * shape.in_channels + first_in + c) *
                            shape.axis.kernel;
      for (int64_t tap = taps.begin; tap < taps.end; ++tap) {
        row[tap] =
            own[((tap * blocks + o / block) * block + c) * block + o % block];
      }
    }
  }
}

int64_t GradientParts(const SequenceShape& shape) {
  return PanelsOf(shape) * shape.in_blocks() * TapGroups(shape);
}

}  // namespace convgrad
