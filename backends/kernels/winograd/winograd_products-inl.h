// Multiplies transformed tiles and weights, for one instruction set.
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

// Some tiles and one panel of output channels of one position.
struct TileProducts {
  const float* tiles;    // transformed, of the first one
  int64_t tile_stride;   // floats between planes of the input
  int64_t planes;        // of the input, a block of channels each
  const float* weights;  // of the panel: one row for each input channel
  float* products;
  int64_t product_stride;  // floats between blocks of output channels
  // Whether the products are added to what `products` has.
  bool adds;
  // Weights that are used next, and how many lines of them are fetched for
  // each plane of the input, because those of wide layers are in the last
  // cache, which answers slowly.
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
  for (int64_t plane = 0; plane < at.planes; ++plane) {
    for (int64_t i = 0; i < at.next_lines; ++i, next += kLine) {
      __builtin_prefetch(next, 0, 2);
    }
    const float* tiles = at.tiles + plane * at.tile_stride;
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

using TilesFunction = void (*)(const TileProducts&);

template <int kBlock, int kBlocks, size_t... kIndex>
constexpr auto TilesFunctions(std::index_sequence<kIndex...>) {
  return std::array<TilesFunction, sizeof...(kIndex)>{
      &MultiplyTiles<kBlock, static_cast<int>(kIndex) + 1, kBlocks>...};
}

// Multiplies `count` tiles, some at a time.
template <int kBlock, int kBlocks>
void MultiplyPanel(TileProducts at, int64_t count) {
  constexpr int kMost = MostRows<kBlock, kBlocks>();
  static constexpr auto kFunctions =
      TilesFunctions<kBlock, kBlocks>(std::make_index_sequence<kMost>());
  for (int64_t calls = (count + kMost - 1) / kMost; calls > 0; --calls) {
    const int64_t size = (count + calls - 1) / calls;
    kFunctions[size - 1](at);
    at.tiles += size * kBlock;
    at.products += size * kBlock;
    at.next += at.planes * at.next_lines * 16;
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
