#include "backends/kernels/convolutions/sequence_convolution.h"

#include <algorithm>
#include <array>
#include <utility>

#include "backends/kernels/convolutions/sequence_panels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE \
  "backends/kernels/convolutions/sequence_convolution.cc"
#include <hwy/foreach_target.h>

#include "backends/kernels/convolutions/block_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convgrad {
namespace HWY_NAMESPACE {
namespace {

// Some outputs of one panel, all with the same taps.
struct Rows {
  const SequenceShape& shape;
  const float* input;    // of the image, and of the first block of channels
  const float* weights;  // of the panel and that block
  const float* bias;     // of the panel; null if the sums are added
  float* output;         // of the image and the panel
  int64_t blocks = 0;    // of input channels
  AxisRange taps = {};
  int64_t begin = 0;  // the first output
};

template <int kBlock, int kRows, int kBlocks>
void SumRows(const Rows& rows) {
  const SequenceShape& shape = rows.shape;
  Sums<kBlock, kRows, kBlocks> sums;
  if (rows.bias != nullptr) {
    sums.Start(rows.bias, kBlock);
  } else {
    sums.Clear();
  }
  const int64_t first = shape.axis.FirstOf(rows.begin);
  const int64_t step = shape.axis.stride * kBlock;
  for (int64_t block = 0; block < rows.blocks; ++block) {
    const float* input = rows.input + block * shape.axis.in * kBlock;
    for (int64_t tap = rows.taps.begin; tap < rows.taps.end; ++tap) {
      const float* x = input + (first + tap * shape.axis.dilation) * kBlock;
      const float* w = rows.weights + (block * shape.axis.kernel + tap) *
                                          kBlock * kBlocks * kBlock;
      for (int c = 0; c < kBlock; ++c) {
        sums.Add(x + c, step, w + c * kBlocks * kBlock, kBlock);
      }
    }
  }
  float* to = rows.output + rows.begin * kBlock;
  if (rows.bias != nullptr) {
    sums.Store(to, shape.axis.out * kBlock);
  } else {
    sums.AddTo(to, shape.axis.out * kBlock);
  }
}

using RowsFunction = void (*)(const Rows&);

template <int kBlock, int kBlocks, size_t... kIndex>
constexpr auto RowsFunctions(std::index_sequence<kIndex...>) {
  return std::array<RowsFunction, sizeof...(kIndex)>{
      &SumRows<kBlock, static_cast<int>(kIndex) + 1, kBlocks>...};
}

// Computes outputs with the same taps, some at a time.
template <int kBlock, int kBlocks>
void SumRun(Rows rows, int64_t count) {
  constexpr int kMost = MostRows<kBlock, kBlocks>();
  static constexpr auto kFunctions =
      RowsFunctions<kBlock, kBlocks>(std::make_index_sequence<kMost>());
  for (int64_t calls = (count + kMost - 1) / kMost; calls > 0; --calls) {
    const int64_t size = (count + calls - 1) / calls;
    kFunctions[size - 1](rows);
    rows.begin += size;
    count -= size;
  }
}

// Computes the outputs `range` of a panel, slice by slice of input channels.
template <int kBlock, int kBlocks>
void SumRange(Rows rows, AxisRange range) {
  const SequenceShape& shape = rows.shape;
  const int64_t blocks = shape.in_blocks(), slice = SliceOf(shape);
  const int64_t floats = shape.axis.kernel * kBlock * kBlocks * kBlock;
  for (int64_t block = 0; block < blocks; block += slice) {
    rows.blocks = std::min(slice, blocks - block);
    for (int64_t at = range.begin; at < range.end;) {
      rows.begin = at;
      rows.taps = TapsOf(shape.axis, at);
      at = EndOfRun(shape.axis, rows.taps, at, range.end);
      SumRun<kBlock, kBlocks>(rows, at - rows.begin);
    }
    rows.input += rows.blocks * shape.axis.in * kBlock;
    rows.weights += rows.blocks * floats;
    rows.bias = nullptr;
  }
}

template <int kBlock>
void Convolve(const SequenceShape& shape, const float* input,
              const float* arranged, float* output, int64_t part) {
  const int64_t chunks = ChunksOf(shape), panels = PanelsOf(shape);
  const int64_t chunk = part % chunks, panel = part / chunks % panels;
  const int64_t image = part / chunks / panels;
  const AxisRange range = {
      chunk * kSequenceChunk,
      std::min((chunk + 1) * kSequenceChunk, shape.axis.out)};
  const SequencePanel at(shape, panel);
  const Rows rows = {
      .shape = shape,
      .input = input + image * shape.in_blocks() * shape.axis.in * kBlock,
      .weights = arranged + at.weights,
      .bias = arranged + BiasOffset(shape) + at.first_block * kBlock,
      .output = output + (image * shape.out_blocks() + at.first_block) *
                             shape.axis.out * kBlock};
  if (at.blocks == 2) {
    SumRange<kBlock, 2>(rows, range);
  } else {
    SumRange<kBlock, 1>(rows, range);
  }
  const int64_t padding = shape.out_blocks() * kBlock - shape.out_channels;
  if (padding == 0 || panel + 1 < panels) return;
  // An Inf or NaN times the weights' padding isn't 0.
  float* last = rows.output + (at.blocks - 1) * shape.axis.out * kBlock;
  for (int64_t i = range.begin; i < range.end; ++i) {
    std::fill_n(last + (i + 1) * kBlock - padding, padding, 0.0F);
  }
}

// Adds the products of some outputs to the sums of some input channels, of a
// tap and a panel.
template <int kBlock, int kBlocks>
void AddProducts(const SequenceShape& shape, const float* input,
                 const float* gradient, AxisRange range, float* sums) {
  constexpr int kRows = kHas32Registers ? 8 : 4;
  const int64_t step = shape.axis.stride * kBlock;
  for (int c = 0; c < kBlock; c += kRows) {
    Sums<kBlock, kRows, kBlocks> part;
    part.Clear();
    for (int64_t t = range.begin; t < range.end; ++t) {
      part.Add(input + t * step + c, 1, gradient + t * kBlock,
               shape.axis.out * kBlock);
    }
    part.AddTo(sums + c * kBlock, kBlock * kBlock);
  }
}

template <int kBlock, int kBlocks>
void AddUpTaps(const SequenceShape& shape, const float* input,
               const float* gradient, const SequenceGradientPart& at,
               float* sums) {
  for (int64_t n = 0; n < shape.batch; ++n) {
    const float* x =
        input + (n * shape.in_blocks() + at.in_block) * shape.axis.in * kBlock;
    const float* dy = gradient + (n * shape.out_blocks() + at.first_block) *
                                     shape.axis.out * kBlock;
    for (int64_t t = 0; t < shape.axis.out; t += kSequenceShortSum) {
      for (int64_t tap = at.taps.begin; tap < at.taps.end; ++tap) {
        const AxisRange all = OutputsOf(shape.axis, tap);
        const AxisRange range = {std::max(all.begin, t),
                                 std::min(all.end, t + kSequenceShortSum)};
        if (range.begin >= range.end) continue;
        AddProducts<kBlock, kBlocks>(
            shape, x + (tap * shape.axis.dilation - shape.axis.pad) * kBlock,
            dy, range, sums + tap * kBlocks * kBlock * kBlock);
      }
    }
  }
}

template <int kBlock>
void AddUp(const SequenceShape& shape, const float* input,
           const float* gradient, float* sums, float* weight_gradient,
           int64_t part) {
  const SequenceGradientPart at(shape, part);
  float* own = sums + at.sums;
  const int64_t floats = at.blocks * kBlock * kBlock;
  std::fill(own + at.taps.begin * floats, own + at.taps.end * floats, 0.0F);
  if (at.blocks == 2) {
    AddUpTaps<kBlock, 2>(shape, input, gradient, at, own);
  } else {
    AddUpTaps<kBlock, 1>(shape, input, gradient, at, own);
  }
  at.Write(shape, own, weight_gradient);
}

void ConvolvePart(const SequenceShape& shape, const float* input,
                  const float* arranged, float* output, int64_t part) {
  if (shape.block == 16) {
    Convolve<16>(shape, input, arranged, output, part);
  } else {
    Convolve<8>(shape, input, arranged, output, part);
  }
}

void AddUpPart(const SequenceShape& shape, const float* input,
               const float* gradient, float* sums, float* weight_gradient,
               int64_t part) {
  if (shape.block == 16) {
    AddUp<16>(shape, input, gradient, sums, weight_gradient, part);
  } else {
    AddUp<8>(shape, input, gradient, sums, weight_gradient, part);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace convgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convgrad {
namespace {

HWY_EXPORT(ConvolvePart);
HWY_EXPORT(AddUpPart);

}  // namespace

void ConvolveSequences(const SequenceShape& shape, const float* input,
                       const float* arranged, RunParts run, float* output) {
  run(shape.batch * PanelsOf(shape) * ChunksOf(shape), [&](int64_t part) {
    HWY_DYNAMIC_DISPATCH(ConvolvePart)(shape, input, arranged, output, part);
  });
}

void AddUpSequenceGradient(const SequenceShape& shape, const float* input,
                           const float* gradient, RunParts run, float* sums,
                           float* weight_gradient) {
  run(GradientParts(shape), [&](int64_t part) {
    HWY_DYNAMIC_DISPATCH(AddUpPart)
    (shape, input, gradient, sums, weight_gradient, part);
  });
}

}  // namespace convgrad
#endif  // HWY_ONCE
