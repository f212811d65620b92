// Defines elementary functions (absolute value, powers, logarithm, sine, ...)
// and their derivatives on vectors, in the form that activations-inl.h defines.
// Files that highway compiles once per kind of CPU include this file, outside
// of their namespaces.
#if defined(CONVGRAD_ELEMENTARY_FUNCTIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVGRAD_ELEMENTARY_FUNCTIONS_INL_H_
#undef CONVGRAD_ELEMENTARY_FUNCTIONS_INL_H_
#else
#define CONVGRAD_ELEMENTARY_FUNCTIONS_INL_H_
#endif

#include "backends/kernels/operators/element_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convgrad {
namespace HWY_NAMESPACE {

// The base of each function: its kind, and whether its gradient needs the
// result instead of the operand.
template <Activation kFunction, bool kResult = false>
struct Function {
  static constexpr Activation kKind = kFunction;
  static constexpr bool kSavesResult = kResult;
};

struct Absolute : Function<Activation::kAbs> {
  static HWY_INLINE auto Of(auto /*d*/, Pointwise, auto x) {
    return hn::Abs(x);
  }
  static HWY_INLINE auto Gradient(auto d, Pointwise, auto dy, auto saved) {
    const auto zero = hn::Zero(d), one = hn::Set(d, 1.0f);
    const auto above = hn::IfThenElseZero(hn::Gt(saved, zero), one);
    const auto below = hn::IfThenElseZero(hn::Lt(saved, zero), one);
    return hn::Mul(dy, hn::Sub(above, below));
  }
};

struct Exponential : Function<Activation::kExp, true> {
  static HWY_INLINE auto Of(auto d, Pointwise, auto x) {
    // Highway's Exp is wrong above 104, and treats NaN as -Inf. It also raises
    // x to the fourth power, which may take long if that is subnormal.
    const auto limited = hn::Min(x, hn::Set(d, 104.0f));
    const auto is_one = hn::Lt(hn::Abs(x), hn::Set(d, 0x1p-30f));
    const auto power = hn::Exp(d, hn::IfThenZeroElse(is_one, limited));
    return hn::IfThenElse(hn::IsNaN(x), x, power);
  }
  static HWY_INLINE auto Gradient(auto /*d*/, Pointwise, auto dy, auto saved) {
    return hn::Mul(dy, saved);
  }
};

struct SquareRoot : Function<Activation::kSqrt, true> {
  static HWY_INLINE auto Of(auto /*d*/, Pointwise, auto x) {
    return hn::Sqrt(x);
  }
  static HWY_INLINE auto Gradient(auto /*d*/, Pointwise, auto dy, auto saved) {
    return hn::Div(dy, hn::Add(saved, saved));
  }
};

struct ReciprocalRoot : Function<Activation::kRsqrt, true> {
  static HWY_INLINE auto Of(auto d, Pointwise, auto x) {
    return hn::Div(hn::Set(d, 1.0f), hn::Sqrt(x));
  }
  static HWY_INLINE auto Gradient(auto d, Pointwise, auto dy, auto saved) {
    const auto cube = hn::Mul(hn::Mul(saved, saved), saved);
    return hn::Mul(hn::Mul(hn::Set(d, -0.5f), dy), cube);
  }
};

struct Reciprocal : Function<Activation::kReciprocal, true> {
  static HWY_INLINE auto Of(auto d, Pointwise, auto x) {
    return hn::Div(hn::Set(d, 1.0f), x);
  }
  static HWY_INLINE auto Gradient(auto /*d*/, Pointwise, auto dy, auto saved) {
    return hn::Neg(hn::Mul(dy, hn::Mul(saved, saved)));
  }
};

struct Logarithm : Function<Activation::kLog> {
  static HWY_INLINE auto Of(auto d, Pointwise, auto x) {
    return OfEach(d, x, [](float each) { return std::log(each); });
  }
  static HWY_INLINE auto Gradient(auto /*d*/, Pointwise, auto dy, auto saved) {
    return hn::Div(dy, saved);
  }
};

struct Power : Function<Activation::kPow> {
  static HWY_INLINE auto Of(auto d, Pointwise n, auto x) {
    return OfEach(d, x, [n](float each) { return Raised(each, n.alpha, 1); });
  }
  static HWY_INLINE auto Gradient(auto d, Pointwise n, auto dy, auto saved) {
    if (n.alpha == 0) return hn::Zero(d);
    const auto slope = OfEach(d, saved, [n](float each) {
      return Raised(each, n.alpha - 1, n.alpha);
    });
    return hn::Mul(dy, slope);
  }

  // Returns factor * x^exponent. As in PyTorch, 0.5 and -0.5 are roots, which
  // differ from powers at -0 and -Inf. Computes in f64 if the exponent isn't a
  // float, because the error of a rounded one grows with the logarithm of x.
  static float Raised(float x, double exponent, double factor) {
    if (exponent == 0.5) return static_cast<float>(factor) * std::sqrt(x);
    if (exponent == -0.5) return static_cast<float>(factor) / std::sqrt(x);
    const auto rounded = static_cast<float>(exponent);
    return rounded == exponent
               ? static_cast<float>(factor) * std::pow(x, rounded)
               : static_cast<float>(factor * std::pow(double{x}, exponent));
  }
};

struct Sine : Function<Activation::kSin> {
  static HWY_INLINE auto Of(auto d, Pointwise, auto x) {
    return OfEach(d, x, [](float each) { return std::sin(each); });
  }
  static HWY_INLINE auto Gradient(auto d, Pointwise, auto dy, auto saved) {
    const auto slope =
        OfEach(d, saved, [](float each) { return std::cos(each); });
    return hn::Mul(dy, slope);
  }
};

struct Cosine : Function<Activation::kCos> {
  static HWY_INLINE auto Of(auto d, Pointwise, auto x) {
    return OfEach(d, x, [](float each) { return std::cos(each); });
  }
  static HWY_INLINE auto Gradient(auto d, Pointwise, auto dy, auto saved) {
    const auto slope =
        OfEach(d, saved, [](float each) { return -std::sin(each); });
    return hn::Mul(dy, slope);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace convgrad
HWY_AFTER_NAMESPACE();

#endif
