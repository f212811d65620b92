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

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace convgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convgrad {
namespace {
HWY_EXPORT(ExponentiateRow);
}  // namespace

SoftmaxSums Exponentiate(absl::Span<double> logits) {
  return HWY_DYNAMIC_DISPATCH(ExponentiateRow)(logits);
}

}  // namespace convgrad
#endif  // HWY_ONCE
