// Computes mathematical functions of vectors, for files that highway compiles
// once per CPU type. Only such files may include this header, outside their
// namespaces.
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

// Returns function(x), computed element by element, for functions that highway
// lacks or supports only for some numbers.
template <class D, class Scalar>
HWY_INLINE hn::Vec<D> OfEach(D d, hn::Vec<D> x, const Scalar& function) {
  float lanes[hn::MaxLanes(D())];
  hn::StoreU(x, d, lanes);
  for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = function(lanes[i]);
  return hn::LoadU(d, lanes);
}

// Returns e^x with an error below 1.25 units in the last place, in half the
// time of highway's Exp; any number for NaN. Requires: x is at most 43, or NaN.
template <class D>
HWY_INLINE hn::Vec<D> ExpOf(D d, hn::Vec<D> x) {
  const hn::RebindToSigned<D> integers;
  // e^x = 2^n e^r, with the integer n nearest to x / ln 2. The sum with
  // 1.5 * 2^23 has n in its lowest bits. Below -104 the result is 0 in f32.
  const auto magic = hn::Set(d, 0x1.8p23f);
  const auto limited = hn::Max(x, hn::Set(d, -104.0f));
  const auto shifted = hn::MulAdd(limited, hn::Set(d, 0x1.715476p0f), magic);
  const auto n = hn::Sub(shifted, magic);
  // ln 2 in two parts, so that the first product is exact.
  auto r = hn::NegMulAdd(n, hn::Set(d, 0x1.62ep-1f), limited);
  r = hn::NegMulAdd(n, hn::Set(d, 0x1.0bfbe8p-15f), r);
  // A Chebyshev interpolation of (e^r - 1 - r) / r^2 where |r| is at most half
  // of ln 2. Without r^2, because subnormal numbers may take long.
  auto power = hn::Set(d, 0x1.6d110ap-10f);
  for (const float coefficient :
       {0x1.120b6ep-7f, 0x1.55551ap-5f, 0x1.5554dcp-3f, 0.5f, 1.0f, 1.0f}) {
    power = hn::MulAdd(power, r, hn::Set(d, coefficient));
  }
  // 2^n may be subnormal, 2^(n + 64) is not.
  const auto exponent =
      hn::Add(hn::BitCast(integers, shifted), hn::Set(integers, 64));
  const auto scaled =
      hn::Add(hn::BitCast(integers, power), hn::ShiftLeft<23>(exponent));
  return hn::Mul(hn::BitCast(d, scaled), hn::Set(d, 0x1p-64f));
}

template <class D>
HWY_INLINE hn::Vec<D> Sigmoid(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1.0f);
  const auto small = ExpOf(d, hn::Neg(hn::Abs(x)));
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

// The standard normal distribution at x.
template <class D>
struct Normal {
  hn::Vec<D> below;    // the probability of values below x
  hn::Vec<D> density;  // the density at x
};

// The probability of values above z = |x| is exp(-z^2 / 2) * p(q) / (1 + z)
// with q = (z - 4) / (z + 4). The polynomial p is a Chebyshev fit on [0, 15].
// Its error is below half a unit in the last place; the error of x times the
// probability is below 5 units. Beyond 15 the probability is 0 in f32.
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
  // The exponential would amplify the rounding of the square. So split z into
  // two parts: products of numbers with half of the bits are exact.
  const auto half = hn::Set(d, -0.5f);
  const auto square = hn::Mul(z, z);
  const hn::RebindToUnsigned<D> du;
  const auto high =
      hn::BitCast(d, hn::And(hn::BitCast(du, z), hn::Set(du, 0xfffff000u)));
  const auto low = hn::Sub(z, high);
  const auto of_high = hn::Sub(hn::Mul(high, high), square);
  const auto lost =
      hn::Add(of_high, hn::Mul(low, hn::Add(hn::Add(high, high), low)));
  const auto power = ExpOf(d, hn::Mul(square, half));
  const auto exact = hn::MulAdd(hn::Mul(power, half), lost, power);
  const auto above = hn::Mul(exact, hn::Div(p, hn::Add(one, z)));
  const auto is_low = hn::Lt(x, hn::Zero(d));
  const auto far = hn::IfThenElse(is_low, above, hn::Sub(one, above));
  // Near 0 the probability is 0.5 + x * s(x^2), rounded once. The polynomial s
  // is a Chebyshev interpolation on [0, 1].
  auto slope = hn::Set(d, -0x1.010b86p-17f);
  for (const float coefficient :
       {0x1.dc102ap-14f, -0x1.36fe32p-10f, 0x1.46ce58p-7f, -0x1.105832p-4f,
        0x1.988454p-2f}) {
    slope = hn::MulAdd(slope, square, hn::Set(d, coefficient));
  }
  const auto near = hn::MulAdd(x, slope, hn::Set(d, 0.5f));
  return {hn::IfThenElse(hn::Lt(z, one), near, far),
          hn::Mul(exact, hn::Set(d, 0.3989422804f))};
}

}  // namespace HWY_NAMESPACE
}  // namespace convgrad
HWY_AFTER_NAMESPACE();

#endif
