// Functions of one element and their derivatives on vectors, for the files that
// highway compiles once per kind of CPU. Included by those only, inside of none
// of their namespaces.
//
// Each struct is one Activation: Of is the function, and Gradient is dy times
// the derivative by what is saved: the result if kSavesResult, else the
// operand. `n` are the function's numbers. NaN goes through all functions.
#if defined(CONVGRAD_ACTIVATIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVGRAD_ACTIVATIONS_INL_H_
#undef CONVGRAD_ACTIVATIONS_INL_H_
#else
#define CONVGRAD_ACTIVATIONS_INL_H_
#endif

#include <cmath>

#include "backends/kernels/operators/element_math-inl.h"
#include "backends/kernels/operators/elementary_functions-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convgrad {
namespace HWY_NAMESPACE {

template <Activation kRectifier>
struct Rectified : Function<kRectifier, kRectifier != Activation::kNone> {
  static HWY_INLINE auto Of(auto d, Pointwise, auto x) {
    return Rectify<kRectifier>(d, x);
  }
  static HWY_INLINE auto Gradient(auto d, Pointwise, auto dy, auto saved) {
    return RectifyGradient<kRectifier>(d, saved, dy);
  }
};

struct LeakyRelu : Function<Activation::kLeakyRelu> {
  static HWY_INLINE auto Of(auto d, Pointwise n, auto x) {
    const auto below = hn::Mul(x, hn::Set(d, n.alpha));
    return hn::IfThenElse(hn::Gt(x, hn::Zero(d)), x, below);
  }
  static HWY_INLINE auto Gradient(auto d, Pointwise n, auto dy, auto saved) {
    const auto below = hn::Mul(dy, hn::Set(d, n.alpha));
    return hn::IfThenElse(hn::Gt(saved, hn::Zero(d)), dy, below);
  }
};

struct Logistic : Function<Activation::kSigmoid, true> {
  static HWY_INLINE auto Of(auto d, Pointwise, auto x) { return Sigmoid(d, x); }
  static HWY_INLINE auto Gradient(auto d, Pointwise, auto dy, auto saved) {
    const auto one = hn::Set(d, 1.0f);
    return hn::Mul(dy, hn::Mul(saved, hn::Sub(one, saved)));
  }
};

struct Silu : Function<Activation::kSilu> {
  static HWY_INLINE auto Of(auto d, Pointwise, auto x) {
    return hn::Mul(x, Sigmoid(d, x));
  }
  static HWY_INLINE auto Gradient(auto d, Pointwise, auto dy, auto saved) {
    const auto one = hn::Set(d, 1.0f);
    const auto s = Sigmoid(d, saved);
    const auto tilt = hn::MulAdd(saved, hn::Sub(one, s), one);
    return hn::Mul(dy, hn::Mul(s, tilt));
  }
};

struct Tanh : Function<Activation::kTanh, true> {
  static HWY_INLINE auto Of(auto d, Pointwise, auto x) {
    return hn::Tanh(d, x);
  }
  static HWY_INLINE auto Gradient(auto d, Pointwise, auto dy, auto saved) {
    return hn::Mul(dy, hn::NegMulAdd(saved, saved, hn::Set(d, 1.0f)));
  }
};

struct Elu : Function<Activation::kElu> {
  static HWY_INLINE auto Of(auto d, Pointwise n, auto x) {
    const auto power = hn::Expm1(d, hn::Min(x, hn::Zero(d)));
    const auto below = hn::Mul(power, hn::Set(d, n.alpha));
    return hn::IfThenElse(hn::Le(x, hn::Zero(d)), below, x);
  }
  static HWY_INLINE auto Gradient(auto d, Pointwise n, auto dy, auto saved) {
    const auto power = ExpOf(d, hn::Min(saved, hn::Zero(d)));
    const auto below = hn::Mul(power, hn::Set(d, n.alpha));
    const auto slope = hn::IfThenElse(hn::IsNaN(saved), saved, below);
    return hn::IfThenElse(hn::Gt(saved, hn::Zero(d)), dy, hn::Mul(dy, slope));
  }
};

struct Gelu : Function<Activation::kGelu> {
  static HWY_INLINE auto Of(auto d, Pointwise, auto x) {
    return hn::Mul(x, NormalAt(d, x).below);
  }
  static HWY_INLINE auto Gradient(auto d, Pointwise, auto dy, auto saved) {
    const auto at = NormalAt(d, saved);
    return hn::Mul(dy, hn::MulAdd(saved, at.density, at.below));
  }
};

// x / 2 * (1 + tanh(u)) = x * sigmoid(2 * u), u = sqrt(2 / pi) * (x + 0.044715
// * x^3).
struct GeluTanh : Function<Activation::kGeluTanh> {
  static constexpr float kLinear = 1.5957691216f;
  static constexpr float kCubic = 0.0713548163f;
  static HWY_INLINE auto Inner(auto d, auto x) {
    const auto slope =
        hn::MulAdd(hn::Mul(x, x), hn::Set(d, kCubic), hn::Set(d, kLinear));
    return hn::Mul(x, slope);
  }
  static HWY_INLINE auto Of(auto d, Pointwise, auto x) {
    return hn::Mul(x, Sigmoid(d, Inner(d, x)));
  }
  static HWY_INLINE auto Gradient(auto d, Pointwise, auto dy, auto saved) {
    // Beyond 20 the sigmoid is flat, and squares might overflow.
    const auto x = Within(d, saved, -20.0f, 20.0f);
    const auto one = hn::Set(d, 1.0f);
    const auto u = Inner(d, x);
    const auto small = ExpOf(d, hn::Neg(hn::Abs(u)));
    const auto sum = hn::Add(one, small);
    const auto steepness = hn::Div(small, hn::Mul(sum, sum));
    const auto slope =
        hn::MulAdd(hn::Mul(x, x), hn::Set(d, 3 * kCubic), hn::Set(d, kLinear));
    return hn::Mul(dy,
                   hn::MulAdd(saved, hn::Mul(steepness, slope), Sigmoid(d, u)));
  }
};

struct Hardsigmoid : Function<Activation::kHardsigmoid> {
  static HWY_INLINE auto Of(auto d, Pointwise, auto x) {
    const auto moved = hn::Add(x, hn::Set(d, 3.0f));
    return hn::Div(Rectify<Activation::kRelu6>(d, moved), hn::Set(d, 6.0f));
  }
  static HWY_INLINE auto Gradient(auto d, Pointwise, auto dy, auto saved) {
    const auto is_open = hn::Lt(hn::Abs(saved), hn::Set(d, 3.0f));
    return hn::IfThenElseZero(is_open, hn::Div(dy, hn::Set(d, 6.0f)));
  }
};

struct Hardswish : Function<Activation::kHardswish> {
  static HWY_INLINE auto Of(auto d, Pointwise n, auto x) {
    return hn::Mul(x, Hardsigmoid::Of(d, n, x));
  }
  static HWY_INLINE auto Gradient(auto d, Pointwise, auto dy, auto saved) {
    const auto three = hn::Set(d, 3.0f);
    const auto slope = hn::Add(hn::Div(saved, three), hn::Set(d, 0.5f));
    const auto raised =
        hn::IfThenElse(hn::Ge(saved, three), dy, hn::Mul(dy, slope));
    return hn::IfThenZeroElse(hn::Le(saved, hn::Neg(three)), raised);
  }
};

struct Hardtanh : Function<Activation::kHardtanh> {
  static HWY_INLINE auto Of(auto d, Pointwise n, auto x) {
    return Within(d, x, n.alpha, n.beta);
  }
  static HWY_INLINE auto Gradient(auto d, Pointwise n, auto dy, auto saved) {
    const auto is_flat = hn::Or(hn::Le(saved, hn::Set(d, n.alpha)),
                                hn::Ge(saved, hn::Set(d, n.beta)));
    return hn::IfThenZeroElse(is_flat, dy);
  }
};

struct Clamp : Function<Activation::kClamp> {
  static HWY_INLINE auto Of(auto d, Pointwise n, auto x) {
    return Within(d, x, n.alpha, n.beta);
  }
  static HWY_INLINE auto Gradient(auto d, Pointwise n, auto dy, auto saved) {
    const auto low = hn::Set(d, n.alpha), high = hn::Set(d, n.beta);
    const auto is_above =
        std::isinf(n.alpha) ? hn::Ge(saved, low) : hn::Gt(saved, low);
    const auto is_below =
        std::isinf(n.beta) ? hn::Le(saved, high) : hn::Lt(saved, high);
    return hn::IfThenElseZero(hn::And(is_above, is_below), dy);
  }
};

// x * tanh(log(1 + e)) = x * w / (w + 2), e = exp(x), w = e * (e + 2).
struct Mish : Function<Activation::kMish> {
  // From here on w / (w + 2) is 1.
  static constexpr float kTop = 20.0f;
  static HWY_INLINE auto Of(auto d, Pointwise, auto x) {
    const auto two = hn::Set(d, 2.0f);
    const auto e = ExpOf(d, hn::Min(x, hn::Set(d, kTop)));
    const auto w = hn::Mul(e, hn::Add(e, two));
    return hn::Mul(x, hn::Div(w, hn::Add(w, two)));
  }
  static HWY_INLINE auto Gradient(auto d, Pointwise, auto dy, auto saved) {
    const auto one = hn::Set(d, 1.0f), two = hn::Set(d, 2.0f);
    const auto top = hn::Set(d, kTop);
    const auto e = ExpOf(d, hn::Min(saved, top));
    const auto w = hn::Mul(e, hn::Add(e, two));
    const auto below = hn::Add(w, two);
    const auto slope =
        hn::Div(hn::Mul(hn::Set(d, 4.0f), hn::Mul(e, hn::Add(e, one))),
                hn::Mul(below, below));
    const auto open = hn::IfThenZeroElse(hn::Gt(saved, top), slope);
    return hn::Mul(dy, hn::MulAdd(saved, open, hn::Div(w, below)));
  }
};

// log(1 + exp(alpha * x)) / alpha; x itself where alpha * x is above beta.
struct Softplus : Function<Activation::kSoftplus> {
  static HWY_INLINE auto Of(auto d, Pointwise n, auto x) {
    const auto alpha = hn::Set(d, n.alpha);
    const auto t = hn::Mul(x, alpha);
    const auto small = ExpOf(d, hn::Neg(hn::Abs(t)));
    const auto log = hn::Add(hn::Max(t, hn::Zero(d)), hn::Log1p(d, small));
    const auto is_linear = hn::Or(hn::Gt(t, hn::Set(d, n.beta)), hn::IsNaN(x));
    return hn::IfThenElse(is_linear, x, hn::Div(log, alpha));
  }
  static HWY_INLINE auto Gradient(auto d, Pointwise n, auto dy, auto saved) {
    const auto t = hn::Mul(saved, hn::Set(d, n.alpha));
    const auto is_linear = hn::Gt(t, hn::Set(d, n.beta));
    return hn::IfThenElse(is_linear, dy, hn::Mul(dy, Sigmoid(d, t)));
  }
};

// The gradient of each of these is the function itself, of dy, but for
// kShift's, which is dy.
template <Activation kFunction>
struct Linear : Function<kFunction> {
  static HWY_INLINE auto Of(auto d, Pointwise n, auto x) {
    const auto alpha = hn::Set(d, n.alpha);
    if constexpr (kFunction == Activation::kNeg) return hn::Neg(x);
    if constexpr (kFunction == Activation::kShift) return hn::Add(x, alpha);
    if constexpr (kFunction == Activation::kScale) return hn::Mul(x, alpha);
    if constexpr (kFunction == Activation::kQuotient) return hn::Div(x, alpha);
  }
  static HWY_INLINE auto Gradient(auto d, Pointwise n, auto dy,
                                  auto /*saved*/) {
    if constexpr (kFunction == Activation::kShift) return dy;
    return Of(d, n, dy);
  }
};

template <class... Functions>
struct List {};
using Activations =
    List<Rectified<Activation::kNone>, Rectified<Activation::kRelu>,
         Rectified<Activation::kRelu6>, LeakyRelu, Logistic, Silu, Tanh, Elu,
         Gelu, GeluTanh, Hardsigmoid, Hardswish, Hardtanh, Clamp, Mish,
         Softplus, Absolute, Exponential, SquareRoot, ReciprocalRoot,
         Reciprocal, Logarithm, Power, Sine, Cosine, Linear<Activation::kNeg>,
         Linear<Activation::kShift>, Linear<Activation::kScale>,
         Linear<Activation::kQuotient>>;

}  // namespace HWY_NAMESPACE
}  // namespace convgrad
HWY_AFTER_NAMESPACE();

#endif
