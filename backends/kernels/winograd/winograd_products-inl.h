// Multiplies matrices whose columns are in blocks, with the sums in registers,
// for one instruction set.
#if defined(BACKENDS_KERNELS_WINOGRAD_PRODUCTS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef BACKENDS_KERNELS_WINOGRAD_PRODUCTS_INL_H_
#undef BACKENDS_KERNELS_WINOGRAD_PRODUCTS_INL_H_
#else
#define BACKENDS_KERNELS_WINOGRAD_PRODUCTS_INL_H_
#endif

#include <array>
#include <utility>

#include "backends/kernels/winograd/winograd_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convgrad::winograd {
namespace HWY_NAMESPACE {
namespace {

constexpr bool kHas32Registers = HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86;

// Sums of kRows rows and of the columns of kBlocks blocks.
template <int kBlock, int kRows, int kBlocks>
class Sums {
 public:
  static constexpr int kLanes = static_cast<int>(hn::MaxLanes(Tag<kBlock>()));
  static constexpr int kVectors = kBlocks * kBlock / kLanes;

  // A column's vector `v` is at `v / kPerBlock * stride + v % kPerBlock *
  // kLanes`.
  static constexpr int kPerBlock = kBlock / kLanes;
  static HWY_INLINE int64_t OffsetOf(int v, int64_t stride) {
    return v / kPerBlock * stride + v % kPerBlock * kLanes;
  }

  HWY_INLINE void Clear() {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sums_[r][v] = hn::Zero(kTag);
    }
  }
  HWY_INLINE void Store(float* to, int64_t stride) const {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        hn::Store(sums_[r][v], kTag, to + OffsetOf(v, stride) + r * kBlock);
      }
    }
  }
  // Adds the sums to others. Sums of few products each have smaller rounding
  // errors than one long sum.
  HWY_INLINE void AddTo(float* to, int64_t stride) const {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        float* at = to + OffsetOf(v, stride) + r * kBlock;
        hn::Store(hn::Add(hn::Load(kTag, at), sums_[r][v]), kTag, at);
      }
    }
  }
  // Adds the products of a column, with `step` floats between its elements, and
  // a row in blocks.
  HWY_INLINE void Add(const float* column, int64_t step, const float* row,
                      int64_t stride) {
    Vector<kBlock> w[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      w[v] = hn::Load(kTag, row + OffsetOf(v, stride));
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const auto x = hn::Set(kTag, column[r * step]);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        sums_[r][v] = hn::MulAdd(x, w[v], sums_[r][v]);
      }
    }
  }

 private:
  static constexpr Tag<kBlock> kTag = {};

  Vector<kBlock> sums_[kRows][kVectors];
};

// Some tiles and one panel of output channels of one position.
struct TileProducts {
  const float* tiles;    // transformed, of the first one
  int64_t tile_stride;   // floats between blocks of input channels
  int64_t blocks;        // of input channels
  const float* weights;  // of the panel: one row for each input channel
  float* products;
  int64_t product_stride;  // floats between blocks of output channels
  // Whether the products are added to those that are there.
  bool adds;
  // Weights that are used next, and how many lines of them are fetched for
  // each block of input channels: those of wide layers come from the last
  // cache, whose latency would be waited for.
  const float* next;
  int64_t next_lines;
};

template <int kBlock, int kRows, int kBlocks>
void MultiplyTiles(const TileProducts& at) {
  constexpr int64_t kLine = 16;  // floats
  Sums<kBlock, kRows, kBlocks> sums;
  sums.Clear();
  const float* weights = at.weights;
  const float* next = at.next;
  for (int64_t block = 0; block < at.blocks; ++block) {
    for (int64_t i = 0; i < at.next_lines; ++i, next += kLine) {
      __builtin_prefetch(next, 0, 2);
    }
    const float* tiles = at.tiles + block * at.tile_stride;
    for (int c = 0; c < kBlock; ++c, weights += kBlocks * kBlock) {
      sums.Add(tiles + c, kBlock, weights, kBlock);
    }
  }
  if (at.adds) {
    sums.AddTo(at.products, at.product_stride);
  } else {
    sums.Store(at.products, at.product_stride);
  }
}

// The most tiles whose sums fit in registers, beside a row of weights and a
// factor.
template <int kBlock, int kBlocks>
constexpr int MostTiles() {
  constexpr int kVectors = Sums<kBlock, 1, kBlocks>::kVectors;
  constexpr int kRegisters = kHas32Registers ? 32 : 16;
  constexpr int kMost = (kRegisters - 1) / kVectors - 1;
  return kMost < 1 ? 1 : kMost > 14 ? 14 : kMost;
}

using TilesFunction = void (*)(const TileProducts&);

template <int kBlock, int kBlocks, size_t... kIndex>
constexpr auto TilesFunctions(std::index_sequence<kIndex...>) {
  return std::array<TilesFunction, sizeof...(kIndex)>{
      &MultiplyTiles<kBlock, static_cast<int>(kIndex) + 1, kBlocks>...};
}

// Multiplies `count` tiles, some at a time.
template <int kBlock, int kBlocks>
void MultiplyPanel(TileProducts at, int64_t count) {
  constexpr int kMost = MostTiles<kBlock, kBlocks>();
  static constexpr auto kFunctions =
      TilesFunctions<kBlock, kBlocks>(std::make_index_sequence<kMost>());
  for (int64_t calls = (count + kMost - 1) / kMost; calls > 0; --calls) {
    const int64_t size = (count + calls - 1) / calls;
    kFunctions[size - 1](at);
    at.tiles += size * kBlock;
    at.products += size * kBlock;
    at.next += at.blocks * at.next_lines * 16;
    count -= size;
  }
}

// All tiles of a part, some input channels and a panel of output channels of
// one position.
struct ChannelProducts {
  const float* inputs;      // transformed, of the first channel
  const float* gradients;   // transformed, of the panel
  int64_t gradient_stride;  // floats between blocks of output channels
  int64_t tiles;
  float* sums;
  int64_t sum_stride;  // floats between blocks of output channels
};

template <int kBlock, int kRows, int kBlocks>
void AddChannelProducts(const ChannelProducts& at) {
  Sums<kBlock, kRows, kBlocks> sums;
  sums.Clear();
  for (int64_t t = 0; t < at.tiles; ++t) {
    sums.Add(at.inputs + t * kBlock, 1, at.gradients + t * kBlock,
             at.gradient_stride);
  }
  sums.AddTo(at.sums, at.sum_stride);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace convgrad::winograd
HWY_AFTER_NAMESPACE();

#endif
