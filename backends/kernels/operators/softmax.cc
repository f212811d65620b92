#include "backends/kernels/operators/softmax.h"

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
HWY_EXPORT(SoftmaxRowGradient);
}  // namespace

SoftmaxSums Exponentiate(absl::Span<double> logits) {
  return HWY_DYNAMIC_DISPATCH(ExponentiateRow)(logits);
}

void SoftmaxGradient(absl::Span<const float> y, absl::Span<float> dy) {
  HWY_DYNAMIC_DISPATCH(SoftmaxRowGradient)(y, dy);
}

}  // namespace convgrad
#endif  // HWY_ONCE
