#include "backends/kernels/convolutions/depthwise_gradient.h"

#include <algorithm>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/kernels/convolutions/depthwise_gradient.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace convgrad {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// A sum in f32 of this many products is added to the total in double. A row is
// divided into parts of at most this many products.
constexpr int64_t kShortSum = 128;

// Returns the most products of a sum in f32. The error bound grows with the
// root of all products, so few products need shorter sums.
int64_t MostOfSum(const DepthwiseShape& shape) {
  return shape.batch * shape.y.out * shape.x.out < 512 ? 176 : 2 * kShortSum;
}

// Returns the part of `outputs` within `limits`.
AxisRange Within(const AxisRange& outputs, const AxisRange& limits) {
  const int64_t begin = std::max(outputs.begin, limits.begin);
  const int64_t end = std::min(outputs.end, limits.end);
  return begin < end ? AxisRange{begin, end}
                     : AxisRange{limits.begin, limits.begin};
}

// Some taps of a kernel's row in one block of channels.
struct Part {
  int64_t block;
  int64_t row;
  int64_t first_tap;
};

template <int kTaps, int kBlock>
class TapSums {
 public:
  TapSums(const DepthwiseShape& shape, const DepthwiseGradientTensors& tensors,
          const Part& part)
      : shape_(shape),
        tensors_(tensors),
        part_(part),
        rows_(OutputsOf(shape.y, part.row)),
        most_of_sum_(MostOfSum(shape)) {
    common_ = {0, shape.x.out};
    for (int k = 0; k < kTaps; ++k) {
      columns_[k] = OutputsOf(shape.x, part.first_tap + k);
      common_.begin = std::max(common_.begin, columns_[k].begin);
      common_.end = std::min(common_.end, columns_[k].end);
      shift_[k] = (part.first_tap + k) * shape.x.dilation - shape.x.pad;
    }
    if (common_.begin >= common_.end) common_ = {0, 0};
  }

  HWY_INLINE void Run() {
    for (int64_t lane = 0; lane < kBlock; lane += hn::Lanes(kTag)) {
      std::fill_n(totals_, kTaps * kBlock, 0.0);
      SumLanes(lane);
      Write(lane);
    }
  }

 private:
  using Tag = hn::CappedTag<float, kBlock>;
  using V = hn::Vec<Tag>;

  static constexpr Tag kTag = {};

  HWY_INLINE void SumLanes(int64_t lane) {
    const ConvAxis &y = shape_.y, &x = shape_.x;
    V sums[kTaps];
    for (V& sum : sums) sum = hn::Zero(kTag);
    int64_t products = 0;
    for (int64_t n = 0; n < shape_.batch; ++n) {
      const int64_t image = n * shape_.blocks() + part_.block;
      const float* input = tensors_.input + image * y.in * x.in * kBlock + lane;
      const float* gradient =
          tensors_.gradient + image * y.out * x.out * kBlock + lane;
      for (int64_t row = rows_.begin; row < rows_.end; ++row) {
        const int64_t from = row * y.stride + part_.row * y.dilation - y.pad;
        for (int64_t begin = 0; begin < x.out; begin += kShortSum) {
          const AxisRange part = {begin, std::min(begin + kShortSum, x.out)};
          if (products + part.end - begin > most_of_sum_) {
            AddToTotals(sums);
            products = 0;
          }
          SumRow(input + from * x.in * kBlock, gradient + row * x.out * kBlock,
                 part, sums);
          products += part.end - begin;
          if (products < kShortSum) continue;
          AddToTotals(sums);
          products = 0;
        }
      }
    }
    AddToTotals(sums);
  }

  // Adds the products of a part of a row.
  HWY_INLINE void SumRow(const float* input, const float* gradient,
                         const AxisRange& part, V* sums) const {
    const int64_t stride = shape_.x.stride;
    const AxisRange common = Within(common_, part);
    const auto at = [&](int64_t column, int k) HWY_ATTR {
      return hn::LoadU(kTag, input + (column * stride + shift_[k]) * kBlock);
    };
    for (int64_t i = common.begin; i < common.end; ++i) {
      const V factor = hn::LoadU(kTag, gradient + i * kBlock);
      for (int k = 0; k < kTaps; ++k) {
        sums[k] = hn::MulAdd(at(i, k), factor, sums[k]);
      }
    }
    for (int k = 0; k < kTaps; ++k) {
      const auto add = [&](int64_t begin, int64_t end) HWY_ATTR {
        for (int64_t i = begin; i < end; ++i) {
          const V factor = hn::LoadU(kTag, gradient + i * kBlock);
          sums[k] = hn::MulAdd(at(i, k), factor, sums[k]);
        }
      };
      const AxisRange columns = Within(columns_[k], part);
      add(columns.begin, std::min(columns.end, common.begin));
      add(std::max(columns.begin, common.end), columns.end);
    }
  }

  // Adds the sums to the totals, and sets them to 0.
  HWY_INLINE void AddToTotals(V* sums) {
    HWY_ALIGN float values[kBlock];
    for (int k = 0; k < kTaps; ++k) {
      hn::Store(sums[k], kTag, values);
      sums[k] = hn::Zero(kTag);
      double* totals = totals_ + k * kBlock;
      for (size_t i = 0; i < hn::Lanes(kTag); ++i) totals[i] += values[i];
    }
  }

  void Write(int64_t lane) const {
    const int64_t first = part_.block * kBlock + lane;
    const int64_t channels = std::min<int64_t>(
        hn::Lanes(kTag), std::max<int64_t>(shape_.channels - first, 0));
    for (int64_t i = 0; i < channels; ++i) {
      float* to =
          tensors_.weight_gradient +
          ((first + i) * shape_.y.kernel + part_.row) * shape_.x.kernel +
          part_.first_tap;
      for (int k = 0; k < kTaps; ++k) {
        to[k] = static_cast<float>(totals_[k * kBlock + i]);
      }
    }
  }

  const DepthwiseShape& shape_;
  const DepthwiseGradientTensors& tensors_;
  const Part part_;
  const AxisRange rows_;
  const int64_t most_of_sum_;
  // Outputs of each tap, and of all of them.
  AxisRange columns_[kTaps], common_;
  int64_t shift_[kTaps];
  double totals_[kTaps * kBlock];
};

template <int kBlock>
void SumKernelRow(const DepthwiseShape& shape,
                  const DepthwiseGradientTensors& tensors, int64_t block,
                  int64_t row) {
  int64_t tap = 0;
  const auto sum = [&](auto taps) HWY_ATTR {
    while (shape.x.kernel - tap >= taps()) {
      TapSums<taps(), kBlock>(shape, tensors, {block, row, tap}).Run();
      tap += taps();
    }
  };
  // The sums of a call fit the registers.
  sum(std::integral_constant<int, 7>());
  sum(std::integral_constant<int, 5>());
  sum(std::integral_constant<int, 3>());
  sum(std::integral_constant<int, 1>());
}

void SumPart(const DepthwiseShape& shape,
             const DepthwiseGradientTensors& tensors, int64_t part) {
  const int64_t block = part / shape.y.kernel, row = part % shape.y.kernel;
  if (shape.block == 16) {
    SumKernelRow<16>(shape, tensors, block, row);
  } else {
    SumKernelRow<8>(shape, tensors, block, row);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace convgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convgrad {
namespace {

HWY_EXPORT(SumPart);

}  // namespace

void AddUpDepthwiseGradient(const DepthwiseShape& shape,
                            const DepthwiseGradientTensors& tensors,
                            RunParts run) {
  run(shape.blocks() * shape.y.kernel, [&](int64_t part) {
    HWY_DYNAMIC_DISPATCH(SumPart)(shape, tensors, part);
  });
}

}  // namespace convgrad
#endif  // HWY_ONCE
