// Mathematical functions of vectors, for the files that highway compiles once
// per kind of CPU. Included by those only, inside of none of their namespaces.
//
// Highway's Exp is wrong above 104 and takes NaN for -Inf: so exponents are
// limited here, and NaN goes around it.
#if defined(CONVGRAD_ELEMENT_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVGRAD_ELEMENT_MATH_INL_H_
#undef CONVGRAD_ELEMENT_MATH_INL_H_
#else
#define CONVGRAD_ELEMENT_MATH_INL_H_
#endif

#include <cmath>
#include <iterator>

#include "backends/kernels/operators/channel_vectors-inl.h"
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convgrad {
namespace HWY_NAMESPACE {

// Returns function(x), element by element: of functions that highway lacks, or
// has for some numbers only.
template <class D, class Scalar>
HWY_INLINE hn::Vec<D> OfEach(D d, hn::Vec<D> x, const Scalar& function) {
  float lanes[hn::MaxLanes(D())];
  hn::StoreU(x, d, lanes);
  for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = function(lanes[i]);
  return hn::LoadU(d, lanes);
}

template <class D>
HWY_INLINE hn::Vec<D> Sigmoid(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1.0f);
  const auto small = hn::Exp(d, hn::Neg(hn::Abs(x)));
  const auto above = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), small, one);
  const auto result = hn::Div(above, hn::Add(one, small));
  return hn::IfThenElse(hn::IsNaN(x), x, result);
}

// Returns x within [low, high]; if low is above high, high.
template <class D>
HWY_INLINE hn::Vec<D> Within(D d, hn::Vec<D> x, float low, float high) {
  const auto bottom = hn::Set(d, low), top = hn::Set(d, high);
  const auto raised = hn::IfThenElse(hn::Lt(x, bottom), bottom, x);
  return hn::IfThenElse(hn::Gt(raised, top), top, raised);
}

// The normal distribution at x.
template <class D>
struct Normal {
  hn::Vec<D> below;    // the probability of less than x
  hn::Vec<D> density;  // at x
};

// The probability of more than z = |x| is exp(-z^2 / 2) * p(q) / (1 + z) with
// q = (z - 4) / (z + 4). The polynomial p is a Chebyshev fit on [0, 15], off by
// less than half a unit of the last place; x times this by less than 5 units.
// Beyond 15 f32 has nothing left.
template <class D>
HWY_INLINE Normal<D> NormalAt(D d, hn::Vec<D> x) {
  constexpr float kFit[] = {8.685725333634764e-05f,   7.173253688961267e-04f,
                            -4.1283026803284883e-04f, -5.048112478107214e-03f,
                            1.7967980355024338e-02f,  -3.2185301184654236e-02f,
                            2.8597133234143257e-02f,  1.3998650945723057e-02f,
                            -9.670337289571762e-02f,  4.720532298088074e-01f};
  const auto one = hn::Set(d, 1.0f), four = hn::Set(d, 4.0f);
  const auto z = hn::Min(hn::Abs(x), hn::Set(d, 15.0f));
  const auto q = hn::Div(hn::Sub(z, four), hn::Add(z, four));
  auto p = hn::Set(d, kFit[0]);
  for (size_t i = 1; i < std::size(kFit); ++i) {
    p = hn::MulAdd(p, q, hn::Set(d, kFit[i]));
  }
  // The square's rounding would be multiplied by the exponent. Of a number with
  // the upper half of its bits, products are exact.
  const auto half = hn::Set(d, -0.5f);
  const auto square = hn::Mul(z, z);
  const hn::RebindToUnsigned<D> du;
  const auto high =
      hn::BitCast(d, hn::And(hn::BitCast(du, z), hn::Set(du, 0xfffff000u)));
  const auto low = hn::Sub(z, high);
  const auto of_high = hn::Sub(hn::Mul(high, high), square);
  const auto lost =
      hn::Add(of_high, hn::Mul(low, hn::Add(hn::Add(high, high), low)));
  const auto power = hn::Exp(d, hn::Mul(square, half));
  const auto exact = hn::MulAdd(hn::Mul(power, half), lost, power);
  const auto above = hn::Mul(exact, hn::Div(p, hn::Add(one, z)));
  const auto is_low = hn::Lt(x, hn::Zero(d));
  return {hn::IfThenElse(is_low, above, hn::Sub(one, above)),
          hn::Mul(exact, hn::Set(d, 0.3989422804f))};
}

}  // namespace HWY_NAMESPACE
}  // namespace convgrad
HWY_AFTER_NAMESPACE();

#endif
