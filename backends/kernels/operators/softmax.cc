#include "backends/kernels/operators/softmax.h"

#include <algorithm>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/kernels/operators/softmax.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/kernels/operators/element_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convgrad {
namespace HWY_NAMESPACE {
namespace {

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
// Requires: x <= 0, or NaN, of a float.
template <class D>
HWY_INLINE hn::Vec<D> PowerOf(D d, hn::Vec<D> x) {
  if constexpr (sizeof(hn::TFromD<D>) == sizeof(float)) {
    return hn::IfThenElse(hn::IsNaN(x), x, ExpOf(d, x));
  } else {
    const hn::RebindToSigned<D> integers;
    // e^x = 2^n 2^f, with the integer n nearest to x / ln 2. The sum with
    // 1.5 * 2^52 has n in its lowest bits. 2^f is 1 + f times a Chebyshev
    // interpolation of (2^f - 1) / f on [-0.5, 0.5], of degree 6.
    const auto magic = hn::Set(d, 0x1.8p52), lowest = hn::Set(d, -700.0);
    // A float's NaN has zeros in the lowest bits of its f64, so that the
    // exponent below adds nothing to it.
    const auto limited = hn::IfThenElse(hn::Lt(x, lowest), lowest, x);
    const auto power = hn::Mul(limited, hn::Set(d, 0x1.71547652b82fep0));
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
    return hn::BitCast(d, hn::Add(hn::BitCast(integers, fraction), exponent));
  }
}

// Lanes of a vector at most.
constexpr size_t kMostLanes = 16;

// Returns the largest number of a row, or -Inf. NaN compares as not above any
// number.
HWY_INLINE float LargestOf(const float* row, size_t size) {
  const hn::CappedTag<float, kMostLanes> d;
  const size_t lanes = hn::Lanes(d);
  auto largest = hn::Set(d, -std::numeric_limits<float>::infinity());
  const auto add = [&](size_t i) HWY_ATTR {
    const auto x = hn::LoadU(d, row + i);
    largest = hn::IfThenElse(hn::Gt(x, largest), x, largest);
  };
  for (size_t i = 0; i + lanes < size; i += lanes) add(i);
  add(size - lanes);
  return hn::GetLane(hn::MaxOfLanes(d, largest));
}

// Elements whose powers are added up in their own type.
constexpr size_t kBlock = 1024;
// Computes a row that fills a vector of floats. The row's last vector overlaps
// the one before. `x` and `powers` may be `y`.
template <class T>
void SoftmaxOfVectors(const float* x, size_t size, T* powers, float* y) {
  const hn::CappedTag<T, kMostLanes> d;
  const size_t lanes = hn::Lanes(d), last = size - lanes;
  const auto largest = hn::Set(d, static_cast<T>(LargestOf(x, size)));
  const auto last_power = PowerOf(d, hn::Sub(LoadRow(d, x + last), largest));
  double sum = 0;
  size_t i = 0;
  while (i < last) {
    auto sums = hn::Zero(d);
    for (const size_t end = std::min(last, i + kBlock); i < end; i += lanes) {
      const auto power = PowerOf(d, hn::Sub(LoadRow(d, x + i), largest));
      hn::StoreU(power, d, powers + i);
      sums = hn::Add(sums, power);
    }
    // Adds up in double, because a long sum of floats has large errors.
    sum += hn::GetLane(hn::SumOfLanes(d, sums));
  }
  // The loop ended at `i`, so these lanes aren't in the sum.
  const auto is_new =
      hn::Ge(hn::Iota(d, 0), hn::Set(d, static_cast<T>(i - last)));
  sum += hn::GetLane(hn::SumOfLanes(d, hn::IfThenElseZero(is_new, last_power)));
  const auto scale = hn::Set(d, static_cast<T>(1 / sum));
  for (i = 0; i < last; i += lanes) {
    StoreRow(d, hn::Mul(hn::LoadU(d, powers + i), scale), y + i);
  }
  StoreRow(d, hn::Mul(last_power, scale), y + last);
}

// `powers` has as many elements as the row.
template <class T>
void SoftmaxOf(absl::Span<const float> x, T* powers, float* y) {
  const size_t lanes = hn::Lanes(hn::CappedTag<float, kMostLanes>());
  if (x.size() >= lanes) {
    return SoftmaxOfVectors(x.data(), x.size(), powers, y);
  }
  // The power of -Inf doesn't change the sum.
  float row[kMostLanes];
  T few[kMostLanes];
  std::fill(std::copy(x.begin(), x.end(), row), row + lanes,
            -std::numeric_limits<float>::infinity());
  SoftmaxOfVectors(row, lanes, few, row);
  std::copy_n(row, x.size(), y);
}

void SoftmaxRow(absl::Span<const float> x, absl::Span<double> scratch,
                float* y) {
  SoftmaxOf(x, scratch.data(), y);
}
void SoftmaxRowInF32(absl::Span<const float> x, float* y) {
  SoftmaxOf(x, y, y);
}

void SoftmaxRowGradient(absl::Span<const float> y, const float* dy, float* dx) {
  const hn::ScalableTag<double> d;
  const size_t lanes = hn::Lanes(d);
  const size_t whole = y.size() / lanes * lanes;
  auto sums = hn::Zero(d);
  for (size_t i = 0; i < whole; i += lanes) {
    sums = hn::MulAdd(LoadRow(d, y.data() + i), LoadRow(d, dy + i), sums);
  }
  double sum = hn::GetLane(hn::SumOfLanes(d, sums));
  for (size_t i = whole; i < y.size(); ++i) sum += double{y[i]} * dy[i];
  const auto mean = hn::Set(d, sum);
  for (size_t i = 0; i < whole; i += lanes) {
    const auto above = hn::Sub(LoadRow(d, dy + i), mean);
    StoreRow(d, hn::Mul(LoadRow(d, y.data() + i), above), dx + i);
  }
  for (size_t i = whole; i < y.size(); ++i) {
    dx[i] = static_cast<float>(y[i] * (dy[i] - sum));
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

void Softmax(absl::Span<const float> x, absl::Span<double> scratch, float* y) {
  HWY_DYNAMIC_DISPATCH(SoftmaxRow)(x, scratch, y);
}

void SoftmaxInF32(absl::Span<const float> x, float* y) {
  HWY_DYNAMIC_DISPATCH(SoftmaxRowInF32)(x, y);
}

void SoftmaxGradient(absl::Span<const float> y, const float* dy, float* dx) {
  HWY_DYNAMIC_DISPATCH(SoftmaxRowGradient)(y, dy, dx);
}

}  // namespace convgrad
#endif  // HWY_ONCE
