// A part takes the four rows of transformed tiles one after the other. It adds
// what each row contributes to the outputs, so that a quarter of the
// transformed tiles is in memory at a time.
#include <algorithm>
#include <array>
#include <atomic>

#include "backends/kernels/winograd/winograd.h"
#include "backends/kernels/winograd/winograd_blocks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/kernels/winograd/winograd_forward.cc"
#include <hwy/foreach_target.h>

#include "backends/kernels/operators/activations-inl.h"
#include "backends/kernels/winograd/winograd_products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convgrad::winograd {
namespace HWY_NAMESPACE {
namespace {

using convgrad::HWY_NAMESPACE::Hardswish;
using convgrad::HWY_NAMESPACE::LeakyRelu;
using convgrad::HWY_NAMESPACE::Rectify;
using convgrad::HWY_NAMESPACE::Silu;

// One block of tiles and one group of output channels.
template <int kBlock>
class Part {
 public:
  Part(const Shape& shape, const Epilogue& epilogue,
       const ForwardTensors& tensors, int64_t part)
      : shape_(shape),
        epilogue_(epilogue),
        tensors_(tensors),
        blocks_(shape),
        first_(part / blocks_.groups * blocks_.tiles),
        count_(std::min(blocks_.tiles, shape.tiles() - first_)),
        first_block_(part % blocks_.groups * blocks_.group_blocks),
        block_count_(
            std::min(blocks_.group_blocks, shape.out_blocks() - first_block_)),
        inputs_(tensors.scratch),
        products_(inputs_ + 4 * blocks_.input_stride),
        halves_(products_ + 4 * blocks_.product_stride) {
    ListTiles(shape, first_, {tiles_.data(), static_cast<size_t>(count_)});
  }

  bool Run() {
    FetchAhead();
    return RunRow<0>() && RunRow<1>() && RunRow<2>() && RunRow<3>();
  }

 private:
  using V = Vector<kBlock>;

  static constexpr Tag<kBlock> kTag = {};

  template <int kRow>
  bool RunRow() {
    const bool is_usable = TransformInputRow<kRow, kBlock>(
        shape_, {tiles_.data(), static_cast<size_t>(count_)}, tensors_.x,
        {inputs_, blocks_.input_stride, blocks_.tiles * kBlock});
    if (!is_usable) return false;
    for (int64_t block = 0; block < block_count_; block += 2) {
      Multiply(kRow, block);
      const int64_t end = std::min(block + 2, block_count_);
      for (int64_t b = block; b < end; ++b) TransformOutputs<kRow>(b);
    }
    return true;
  }

  // Fetches the input of the next block of tiles during this one's products. If
  // there is one group, the thread computes that block next.
  void FetchAhead() {
    const int64_t first = first_ + blocks_.tiles;
    const int64_t count = std::min(blocks_.tiles, shape_.tiles() - first);
    if (count <= 0) return;
    ahead_ = InputRows<kBlock>(shape_, {shape_, first, count}, tensors_.x);
    lines_ahead_ = ahead_.LinesPer(kPositions * ((block_count_ + 1) / 2));
  }

  // Returns the rows of a panel of weights.
  int64_t weight_rows() const { return shape_.in_planes() * kBlock; }

  // Multiplies the four positions of a row, for up to two blocks of channels.
  void Multiply(int row, int64_t block) {
    // kDepth rows of weights fit in the first cache beside some tiles. Sums of
    // 64 channels each have about the rounding errors of oneDNN's direct
    // passes; those of 128 channels have 1.3 times as large ones.
    constexpr int64_t kDepth = 64 / kBlock;
    constexpr int64_t kCallTiles = MostRows<kBlock, 2>();
    const int64_t width = std::min<int64_t>(block_count_ - block, 2) * kBlock;
    const int64_t calls = (count_ + kCallTiles - 1) / kCallTiles;
    const int64_t lines = kBlock * width / 16;
    for (int64_t p = 0; p < 4; ++p) {
      ahead_.Fetch(lines_ahead_);
      const float* weights = tensors_.transformed +
                             (4 * row + p) * blocks_.weight_stride +
                             (first_block_ + block) * weight_rows() * kBlock;
      // The next position, or after the last one the next panel.
      const float* next =
          p < 3 ? weights + blocks_.weight_stride
                : weights - 3 * blocks_.weight_stride + weight_rows() * width;
      TileProducts at = {.tiles = inputs_ + p * blocks_.input_stride,
                         .tile_stride = blocks_.tiles * kBlock,
                         .planes = 0,
                         .weights = weights,
                         .products = products_ + p * blocks_.product_stride,
                         .product_stride = blocks_.tiles * kBlock,
                         .adds = false,
                         .next = next,
                         .next_lines = (lines + calls - 1) / calls};
      for (int64_t first = 0; first < shape_.in_planes(); first += kDepth) {
        at.planes = std::min(kDepth, shape_.in_planes() - first);
        if (width > kBlock) {
          MultiplyPanel<kBlock, 2>(at, count_);
        } else {
          MultiplyPanel<kBlock, 1>(at, count_);
        }
        at.tiles += kDepth * at.tile_stride;
        at.weights += kDepth * kBlock * width;
        at.adds = true;
        at.next += calls * at.planes * at.next_lines * 16;
      }
    }
  }

  // Adds a row of products of one block of channels to the outputs, four for
  // each tile, and writes these after the last row.
  template <int kRow>
  void TransformOutputs(int64_t block) {
    const int64_t channel = (first_block_ + block) * kBlock;
    float bias[kBlock] = {};
    if (epilogue_.bias != nullptr) {
      std::copy_n(epilogue_.bias + shape_.first_out_block * kBlock + channel,
                  std::min<int64_t>(kBlock, shape_.out_channels - channel),
                  bias);
    }
    const int64_t stride = blocks_.product_stride;
    const float* from = products_ + block % 2 * blocks_.tiles * kBlock;
    float* halves = halves_ + block * blocks_.tiles * 4 * kBlock;
    for (int64_t i = 0; i < count_; ++i, from += kBlock, halves += 4 * kBlock) {
      for (size_t lane = 0; lane < kBlock; lane += hn::Lanes(kTag)) {
        const float* at = from + lane;
        const V m1 = hn::Load(kTag, at + stride);
        const V m2 = hn::Load(kTag, at + 2 * stride);
        const V left = hn::Add(hn::Load(kTag, at), hn::Add(m1, m2));
        const V right =
            hn::Sub(hn::Sub(m1, m2), hn::Load(kTag, at + 3 * stride));
        float* half = halves + lane;
        if constexpr (kRow < 3) {
          AddRow<kRow>(left, right, half);
        } else {
          Write({hn::Load(kTag, half), hn::Load(kTag, half + kBlock),
                 hn::Sub(hn::Load(kTag, half + 2 * kBlock), left),
                 hn::Sub(hn::Load(kTag, half + 3 * kBlock), right)},
                hn::LoadU(kTag, bias + lane), i, block, lane);
        }
      }
    }
  }

  // The upper outputs are the sum of rows 0, 1 and 2, the lower ones row 1 less
  // rows 2 and 3.
  template <int kRow>
  static HWY_INLINE void AddRow(V left, V right, float* half) {
    const auto add = [](V v, float* to) HWY_ATTR {
      hn::Store(hn::Add(hn::Load(kTag, to), v), kTag, to);
    };
    if constexpr (kRow == 0) {
      hn::Store(left, kTag, half);
      hn::Store(right, kTag, half + kBlock);
      return;
    }
    add(left, half);
    add(right, half + kBlock);
    if constexpr (kRow == 1) {
      hn::Store(left, kTag, half + 2 * kBlock);
      hn::Store(right, kTag, half + 3 * kBlock);
    } else {
      add(hn::Neg(left), half + 2 * kBlock);
      add(hn::Neg(right), half + 3 * kBlock);
    }
  }

  struct Outputs {
    V upper_left, upper_right, lower_left, lower_right;
  };

  // Writes those outputs of a tile that exist.
  HWY_INLINE void Write(const Outputs& outputs, V bias, int64_t tile,
                        int64_t block, size_t lane) const {
    const int64_t row = tiles_[tile].row, column = tiles_[tile].column;
    const int64_t step = shape_.dilation;
    const int64_t plane = OutPlane(shape_, tiles_[tile], first_block_ + block);
    const int64_t at =
        ((plane * shape_.out_height + row) * shape_.out_width + column) *
            kBlock +
        static_cast<int64_t>(lane);
    const bool has_right = column + step < shape_.out_width;
    const bool has_lower = row + step < shape_.out_height;
    const int64_t right = step * kBlock;
    const int64_t below = at + step * shape_.out_width * kBlock;
    WriteOne(outputs.upper_left, bias, at);
    if (has_right) WriteOne(outputs.upper_right, bias, at + right);
    if (!has_lower) return;
    WriteOne(outputs.lower_left, bias, below);
    if (has_right) WriteOne(outputs.lower_right, bias, below + right);
  }
  HWY_INLINE void WriteOne(V value, V bias, int64_t at) const {
    // Transformed weights are multiplied by 4.
    value = hn::MulAdd(value, hn::Set(kTag, 0.25F), bias);
    if (epilogue_.addend != nullptr) {
      value = hn::Add(value, hn::LoadU(kTag, epilogue_.addend + at));
    }
    hn::StoreU(Activated(value), kTag, tensors_.y + at);
  }
  HWY_INLINE V Activated(V value) const {
    const Pointwise function = epilogue_.function;
    switch (function.activation) {
      case Activation::kRelu:
        return Rectify<Activation::kRelu>(kTag, value);
      case Activation::kRelu6:
        return Rectify<Activation::kRelu6>(kTag, value);
      case Activation::kLeakyRelu:
        return LeakyRelu::Of(kTag, function, value);
      case Activation::kSilu:
        return Silu::Of(kTag, function, value);
      case Activation::kHardswish:
        return Hardswish::Of(kTag, function, value);
      default:
        return value;
    }
  }

  const Shape shape_;
  const Epilogue epilogue_;
  const ForwardTensors tensors_;
  const ForwardBlocks blocks_;
  const int64_t first_, count_;              // tiles
  const int64_t first_block_, block_count_;  // of output channels
  float* const inputs_;
  float* const products_;
  float* const halves_;
  std::array<Tile, kMostRows> tiles_;
  RowFetcher ahead_;
  int64_t lines_ahead_ = 0;
};

bool ForwardPart(const Shape& shape, const Epilogue& epilogue,
                 const ForwardTensors& tensors, int64_t part) {
  return shape.block == 16 ? Part<16>(shape, epilogue, tensors, part).Run()
                           : Part<8>(shape, epilogue, tensors, part).Run();
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace convgrad::winograd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convgrad::winograd {
namespace {

HWY_EXPORT(ForwardPart);

}  // namespace

bool Forward(const Shape& shape, const Epilogue& epilogue,
             const ForwardTensors& tensors, RunThreadParts run) {
  const int64_t scratch = ForwardScratch(shape);
  std::atomic<bool> is_usable = true;
  if (shape.tiles() == 0) return true;
  run(ForwardBlocks(shape).parts(), [&](int64_t part, int64_t thread) {
    if (!is_usable.load(std::memory_order_relaxed)) return;
    ForwardTensors own = tensors;
    own.scratch += thread * scratch;
    if (!HWY_DYNAMIC_DISPATCH(ForwardPart)(shape, epilogue, own, part)) {
      is_usable.store(false, std::memory_order_relaxed);
    }
  });
  return is_usable;
}

}  // namespace convgrad::winograd
#endif  // HWY_ONCE
