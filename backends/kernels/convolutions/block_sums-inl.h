// Multiplies matrices whose columns are in blocks of channels, with the sums in
// registers, for one instruction set.
#if defined(BACKENDS_KERNELS_CONVOLUTIONS_BLOCK_SUMS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef BACKENDS_KERNELS_CONVOLUTIONS_BLOCK_SUMS_INL_H_
#undef BACKENDS_KERNELS_CONVOLUTIONS_BLOCK_SUMS_INL_H_
#else
#define BACKENDS_KERNELS_CONVOLUTIONS_BLOCK_SUMS_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace convgrad {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

template <int kBlock>
using Tag = hn::CappedTag<float, kBlock>;
template <int kBlock>
using Vector = hn::Vec<Tag<kBlock>>;

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
  // Begins each row with the numbers of `row`, in blocks.
  HWY_INLINE void Start(const float* row, int64_t stride) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        sums_[r][v] = hn::Load(kTag, row + OffsetOf(v, stride));
      }
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

// The most rows whose sums fit in registers, beside a row of weights and a
// factor.
template <int kBlock, int kBlocks>
constexpr int MostRows() {
  constexpr int kVectors = Sums<kBlock, 1, kBlocks>::kVectors;
  constexpr int kRegisters = kHas32Registers ? 32 : 16;
  constexpr int kMost = (kRegisters - 1) / kVectors - 1;
  return kMost < 1 ? 1 : kMost > 14 ? 14 : kMost;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace convgrad
HWY_AFTER_NAMESPACE();

#endif
