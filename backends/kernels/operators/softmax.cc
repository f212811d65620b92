#include "backends/kernels/operators/softmax.h"

#include <algorithm>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/kernels/operators/softmax.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convgrad {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

SoftmaxSums ExponentiateRow(absl::Span<double> logits) {
  const hn::CappedTag<double, kSoftmaxLanes> d;
  const size_t lanes = hn::Lanes(d);
  double* const row = logits.data();
  // NaN compares as not above any number.
  auto largest = hn::Set(d, -std::numeric_limits<double>::infinity());
  for (size_t i = 0; i < logits.size(); i += lanes) {
    const auto x = hn::LoadU(d, row + i);
    largest = hn::IfThenElse(hn::Gt(x, largest), x, largest);
  }
  largest = hn::MaxOfLanes(d, largest);
  auto sum = hn::Zero(d);
  for (size_t i = 0; i < logits.size(); i += lanes) {
    const auto x = hn::Sub(hn::LoadU(d, row + i), largest);
    // Highway's Exp treats NaN as -Inf.
    const auto power = hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, x));
    hn::StoreU(power, d, row + i);
    sum = hn::Add(sum, power);
  }
  return {hn::GetLane(largest), hn::GetLane(hn::SumOfLanes(d, sum))};
}

// Return floats as numbers of d's type, and round them back.
template <class D>
HWY_INLINE hn::Vec<D> LoadRow(D d, const float* from) {
  if constexpr (sizeof(hn::TFromD<D>) == sizeof(float)) {
    return hn::LoadU(d, from);
  } else {
    return hn::PromoteTo(d, hn::LoadU(hn::Rebind<float, D>(), from));
  }
}
template <class D>
HWY_INLINE void StoreRow(D d, hn::Vec<D> value, float* to) {
  if constexpr (sizeof(hn::TFromD<D>) == sizeof(float)) {
    hn::StoreU(value, d, to);
  } else {
    const hn::Rebind<float, D> narrow;
    hn::StoreU(hn::DemoteTo(narrow, value), narrow, to);
  }
}

// Returns e^x, and 1 for x = 0. In f64 the relative error is at most 2^-32, and
// e^-700 stands for all smaller results, which are 0 as floats. NaN stays NaN.
// Requires: x <= 0.
template <class D>
HWY_INLINE hn::Vec<D> PowerOf(D d, hn::Vec<D> x) {
  if constexpr (sizeof(hn::TFromD<D>) == sizeof(float)) {
    // Highway's Exp treats NaN as -Inf.
    return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, x));
  } else {
    const hn::RebindToSigned<D> integers;
    // e^x = 2^n 2^f, with the integer n nearest to x / ln 2. The sum with
    // 1.5 * 2^52 has n in its lowest bits. 2^f is 1 + f times a Chebyshev
    // interpolation of (2^f - 1) / f on [-0.5, 0.5], of degree 6.
    const auto magic = hn::Set(d, 0x1.8p52);
    const auto power = hn::Mul(hn::Max(x, hn::Set(d, -700.0)),
                               hn::Set(d, 0x1.71547652b82fep0));
    const auto shifted = hn::Add(power, magic);
    const auto f = hn::Sub(power, hn::Sub(shifted, magic));
    auto quotient = hn::Set(d, 0x1.00a581594758ep-16);
    for (const double coefficient :
         {0x1.443fffc90db59p-13, 0x1.5d879ead06a82p-10, 0x1.3b2a1b7152befp-7,
          0x1.c6b08d883dca1p-5, 0x1.ebfbe045f4d3cp-3, 0x1.62e42fefa39efp-1}) {
      quotient = hn::MulAdd(quotient, f, hn::Set(d, coefficient));
    }
    const auto fraction = hn::MulAdd(quotient, f, hn::Set(d, 1.0));
    const auto exponent = hn::ShiftLeft<52>(hn::BitCast(integers, shifted));
    const auto result =
        hn::BitCast(d, hn::Add(hn::BitCast(integers, fraction), exponent));
    return hn::IfThenElse(hn::IsNaN(x), x, result);
  }
}

// Elements whose powers are added up in their own type.
constexpr size_t kBlock = 1024;

// `powers` has as many elements as the row, and may be the row.
template <class T>
void SoftmaxOf(absl::Span<float> row, T* powers) {
  const hn::CappedTag<T, 16> d;
  const size_t lanes = hn::Lanes(d), size = row.size();
  const size_t whole = size / lanes * lanes;
  float* const data = row.data();
  // The last elements, filled up with -Inf, whose power doesn't change the sum.
  float rest[16];
  T rest_powers[16];
  std::fill_n(rest, lanes, -std::numeric_limits<float>::infinity());
  std::copy(data + whole, data + size, rest);
  // NaN compares as not above any number.
  auto largests = LoadRow(d, rest);
  largests =
      hn::IfThenElse(hn::IsNaN(largests),
                     hn::Set(d, -std::numeric_limits<T>::infinity()), largests);
  for (size_t i = 0; i < whole; i += lanes) {
    const auto x = LoadRow(d, data + i);
    largests = hn::IfThenElse(hn::Gt(x, largests), x, largests);
  }
  const auto largest = hn::MaxOfLanes(d, largests);
  double sum = 0;
  auto sums = hn::Zero(d);
  for (size_t i = 0; i < whole; i += lanes) {
    const auto power = PowerOf(d, hn::Sub(LoadRow(d, data + i), largest));
    hn::StoreU(power, d, powers + i);
    sums = hn::Add(sums, power);
    // So that a long sum of floats has small errors.
    if (i / kBlock != (i + lanes) / kBlock) {
      sum += hn::GetLane(hn::SumOfLanes(d, sums));
      sums = hn::Zero(d);
    }
  }
  const auto power = PowerOf(d, hn::Sub(LoadRow(d, rest), largest));
  hn::StoreU(power, d, rest_powers);
  sum += hn::GetLane(hn::SumOfLanes(d, hn::Add(sums, power)));
  const auto scale = hn::Set(d, static_cast<T>(1 / sum));
  for (size_t i = 0; i < whole; i += lanes) {
    StoreRow(d, hn::Mul(hn::LoadU(d, powers + i), scale), data + i);
  }
  StoreRow(d, hn::Mul(hn::LoadU(d, rest_powers), scale), rest);
  std::copy_n(rest, size - whole, data + whole);
}

void SoftmaxRow(absl::Span<float> row, absl::Span<double> scratch) {
  SoftmaxOf<double>(row, scratch.data());
}
void SoftmaxRowInF32(absl::Span<float> row) {
  SoftmaxOf<float>(row, row.data());
}

void SoftmaxRowGradient(absl::Span<const float> y, absl::Span<float> dy) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> narrow;
  const size_t lanes = hn::Lanes(d);
  const size_t whole = y.size() / lanes * lanes;
  auto sums = hn::Zero(d);
  for (size_t i = 0; i < whole; i += lanes) {
    sums = hn::MulAdd(hn::PromoteTo(d, hn::LoadU(narrow, y.data() + i)),
                      hn::PromoteTo(d, hn::LoadU(narrow, dy.data() + i)), sums);
  }
  double sum = hn::GetLane(hn::SumOfLanes(d, sums));
  for (size_t i = whole; i < y.size(); ++i) sum += double{y[i]} * dy[i];
  const auto mean = hn::Set(d, sum);
  for (size_t i = 0; i < whole; i += lanes) {
    const auto above =
        hn::Sub(hn::PromoteTo(d, hn::LoadU(narrow, dy.data() + i)), mean);
    const auto weight = hn::PromoteTo(d, hn::LoadU(narrow, y.data() + i));
    hn::StoreU(hn::DemoteTo(narrow, hn::Mul(weight, above)), narrow,
               dy.data() + i);
  }
  for (size_t i = whole; i < y.size(); ++i) {
    dy[i] = static_cast<float>(y[i] * (dy[i] - sum));
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace convgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convgrad {
namespace {
HWY_EXPORT(ExponentiateRow);
HWY_EXPORT(SoftmaxRow);
HWY_EXPORT(SoftmaxRowInF32);
HWY_EXPORT(SoftmaxRowGradient);
}  // namespace

SoftmaxSums Exponentiate(absl::Span<double> logits) {
  return HWY_DYNAMIC_DISPATCH(ExponentiateRow)(logits);
}

void Softmax(absl::Span<float> row, absl::Span<double> scratch) {
  HWY_DYNAMIC_DISPATCH(SoftmaxRow)(row, scratch);
}

void SoftmaxInF32(absl::Span<float> row) {
  HWY_DYNAMIC_DISPATCH(SoftmaxRowInF32)(row);
}

void SoftmaxGradient(absl::Span<const float> y, absl::Span<float> dy) {
  HWY_DYNAMIC_DISPATCH(SoftmaxRowGradient)(y, dy);
}

}  // namespace convgrad
#endif  // HWY_ONCE
