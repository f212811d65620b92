// The gradient of the weights: the products of the transformed tiles of the
// input and of the output's gradient are summed over all tiles, and the sums
// are transformed once.
#include <algorithm>
#include <array>
#include <atomic>

#include "backends/kernels/winograd/winograd.h"
#include "backends/kernels/winograd/winograd_blocks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/kernels/winograd/winograd_gradient.cc"
#include <hwy/foreach_target.h>

#include "backends/kernels/winograd/winograd_products-inl.h"
#include "backends/kernels/winograd/winograd_taps-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convgrad::winograd {
namespace HWY_NAMESPACE {
namespace {

// One piece of the tiles and one or all rows of transformed tiles.
template <int kBlock>
class Part {
 public:
  Part(const Shape& shape, const GradientTensors& tensors, int64_t rows,
       int64_t part)
      : shape_(shape),
        tensors_(tensors),
        blocks_(shape),
        rows_(rows),
        first_row_(part * rows % 4),
        begin_(part * rows / 4 * blocks_.piece_tiles),
        end_(std::min(begin_ + blocks_.piece_tiles, shape.tiles())),
        inputs_(tensors.scratch),
        gradients_(inputs_ + 4 * blocks_.input_stride),
        sums_(tensors.sums + part * rows * 4 * blocks_.sum_stride) {}

  bool Run() {
    std::fill_n(sums_, rows_ * 4 * blocks_.sum_stride, 0.0F);
    for (int64_t first = begin_; first < end_; first += blocks_.tiles) {
      count_ = std::min(blocks_.tiles, end_ - first);
      ListTiles(shape_, first, {tiles_.data(), static_cast<size_t>(count_)});
      FetchAhead(first + count_);
      for (int64_t row = 0; row < rows_; ++row) {
        if (!Transform(first_row_ + row)) return false;
        for (int64_t p = 0; p < 4; ++p) Multiply(row, p);
      }
    }
    return true;
  }

 private:
  using V = Vector<kBlock>;

  static constexpr Tag<kBlock> kTag = {};
  // Channels of the input, and blocks of channels of the output, at a time.
  static constexpr int kRows = kHas32Registers ? 8 : 4;
  static constexpr int64_t kMostPanel = 3;

  // Fetches the tensors of the tiles from `first` on during the products of
  // those before, if the part has all rows. Four parts of one row each read the
  // same tensors, and have less time for it.
  void FetchAhead(int64_t first) {
    const int64_t count = std::min(blocks_.tiles, end_ - first);
    if (count <= 0 || rows_ == 1) return;
    const TileRows rows(shape_, first, count);
    inputs_ahead_ = InputRows<kBlock>(shape_, rows, tensors_.x);
    gradients_ahead_ = OutputRows<kBlock>(shape_, rows, tensors_.dy);
    const int64_t panels = (shape_.out_blocks() + kMostPanel - 1) / kMostPanel;
    const int64_t calls =
        kPositions * panels * shape_.in_planes() * (kBlock / kRows);
    input_lines_ = inputs_ahead_.LinesPer(calls);
    gradient_lines_ = gradients_ahead_.LinesPer(calls);
  }

  bool Transform(int64_t row) {
    return row == 0   ? TransformRow<0>()
           : row == 1 ? TransformRow<1>()
           : row == 2 ? TransformRow<2>()
                      : TransformRow<3>();
  }

  template <int kRow>
  bool TransformRow() {
    return TransformInputRow<kRow, kBlock>(
               shape_, {tiles_.data(), static_cast<size_t>(count_)}, tensors_.x,
               {inputs_, blocks_.input_stride, blocks_.tiles * kBlock}) &&
           TransformGradients<kRow>();
  }

  template <int kRow>
  bool TransformGradients() {
    Magnitudes<kBlock> magnitudes;
    const int64_t plane = shape_.out_height * shape_.out_width * kBlock;
    for (int64_t block = 0; block < shape_.out_blocks(); ++block) {
      float* to = gradients_ + block * blocks_.tiles * kBlock;
      for (int64_t i = 0; i < count_; ++i, to += kBlock) {
        const int64_t from = OutPlane(shape_, tiles_[i], block);
        TransformGradient<kRow>(tensors_.dy + from * plane, tiles_[i], to,
                                &magnitudes);
      }
    }
    return magnitudes.AreUsable();
  }

  // Rows of A: y0, y0 + y1, y0 - y1, -y1.
  template <int kRow>
  HWY_INLINE void TransformGradient(const float* plane, const Tile& tile,
                                    float* to,
                                    Magnitudes<kBlock>* magnitudes) const {
    const float* from =
        plane + (tile.row * shape_.out_width + tile.column) * kBlock;
    const int64_t step = shape_.dilation;
    const bool has_right = tile.column + step < shape_.out_width;
    const bool has_lower = tile.row + step < shape_.out_height;
    const int64_t to_right = step * kBlock;
    const int64_t below = step * shape_.out_width * kBlock;
    const int64_t stride = blocks_.gradient_stride;
    for (size_t lane = 0; lane < kBlock; lane += hn::Lanes(kTag)) {
      const auto load = [&](bool has, int64_t at) HWY_ATTR {
        const V v = has ? hn::LoadU(kTag, from + at + lane) : hn::Zero(kTag);
        magnitudes->Note(v);
        return v;
      };
      V left = hn::Zero(kTag), right = hn::Zero(kTag);
      if constexpr (kRow != 3) {
        left = load(true, 0);
        right = load(has_right, to_right);
      }
      if constexpr (kRow != 0) {
        const V a = load(has_lower, below);
        const V b = load(has_lower && has_right, below + to_right);
        left = kRow == 1 ? hn::Add(left, a) : hn::Sub(left, a);
        right = kRow == 1 ? hn::Add(right, b) : hn::Sub(right, b);
      }
      float* at = to + lane;
      hn::Store(left, kTag, at);
      hn::Store(hn::Add(left, right), kTag, at + stride);
      hn::Store(hn::Sub(left, right), kTag, at + 2 * stride);
      hn::Store(hn::Neg(right), kTag, at + 3 * stride);
    }
  }

  // Multiplies one of the four positions of a row of this part.
  void Multiply(int64_t row, int64_t position) {
    ChannelProducts at = {
        .inputs = nullptr,
        .gradients = gradients_ + position * blocks_.gradient_stride,
        .gradient_stride = blocks_.tiles * kBlock,
        .tiles = count_,
        .sums = sums_ + (4 * row + position) * blocks_.sum_stride,
        .sum_stride = shape_.in_planes() * kBlock * kBlock};
    const float* inputs = inputs_ + position * blocks_.input_stride;
    int64_t left = shape_.out_blocks();
    for (int64_t panels = (left + kMostPanel - 1) / kMostPanel; panels > 0;
         --panels) {
      const int64_t size = (left + panels - 1) / panels;
      if (size == 3) MultiplyPanel<3>(inputs, at);
      if (size == 2) MultiplyPanel<2>(inputs, at);
      if (size == 1) MultiplyPanel<1>(inputs, at);
      left -= size;
      at.gradients += size * at.gradient_stride;
      at.sums += size * at.sum_stride;
    }
  }

  template <int kBlocks>
  void MultiplyPanel(const float* inputs, ChannelProducts at) {
    for (int64_t plane = 0; plane < shape_.in_planes(); ++plane) {
      for (int c = 0; c < kBlock; c += kRows) {
        at.inputs = inputs + plane * blocks_.tiles * kBlock + c;
        inputs_ahead_.Fetch(input_lines_);
        gradients_ahead_.Fetch(gradient_lines_);
        AddChannelProducts<kBlock, kRows, kBlocks>(at);
        at.sums += kRows * kBlock;
      }
    }
  }

  const Shape shape_;
  const GradientTensors tensors_;
  const GradientBlocks blocks_;
  const int64_t rows_, first_row_;
  const int64_t begin_, end_;  // tiles
  float* const inputs_;
  float* const gradients_;
  float* const sums_;
  int64_t count_ = 0;  // tiles at a time
  RowFetcher inputs_ahead_, gradients_ahead_;
  int64_t input_lines_ = 0, gradient_lines_ = 0;
  std::array<Tile, kMostRows> tiles_;
};

bool GradientPart(const Shape& shape, const GradientTensors& tensors,
                  int64_t rows, int64_t part) {
  return shape.block == 16 ? Part<16>(shape, tensors, rows, part).Run()
                           : Part<8>(shape, tensors, rows, part).Run();
}

void FinishPart(const Shape& shape, const GradientTensors& tensors,
                int64_t out_block) {
  if (shape.block == 16) {
    Finish<16>(shape, tensors, out_block);
  } else {
    Finish<8>(shape, tensors, out_block);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace convgrad::winograd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convgrad::winograd {
namespace {

HWY_EXPORT(GradientPart);
HWY_EXPORT(FinishPart);

}  // namespace

bool BackwardWeight(const Shape& shape, const GradientTensors& tensors,
                    int64_t threads, RunThreadParts run) {
  const int64_t scratch = GradientScratch(shape);
  std::atomic<bool> is_usable = true;
  const GradientBlocks blocks(shape);
  const int64_t rows = blocks.PartRows(threads);
  run(blocks.pieces * 4 / rows, [&](int64_t part, int64_t thread) {
    if (!is_usable.load(std::memory_order_relaxed)) return;
    GradientTensors own = tensors;
    own.scratch += thread * scratch;
    if (!HWY_DYNAMIC_DISPATCH(GradientPart)(shape, own, rows, part)) {
      is_usable.store(false, std::memory_order_relaxed);
    }
  });
  if (!is_usable) return false;
  run(shape.out_blocks(), [&](int64_t part, int64_t) {
    HWY_DYNAMIC_DISPATCH(FinishPart)(shape, tensors, part);
  });
  return true;
}

}  // namespace convgrad::winograd
#endif  // HWY_ONCE
