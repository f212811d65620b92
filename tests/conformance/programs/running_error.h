// `Bounded` computes in f64 and bounds the error of the same arithmetic in f32.
#pragma once

#include <algorithm>
#include <cmath>

namespace convgrad::testing_support {

inline constexpr double kF32Roundoff = 0x1p-24;
// The allowance for underflow, whether or not subnormal numbers are flushed to
// 0.
inline constexpr double kF32Smallest = 0x1p-126;

// A result of f64 arithmetic, with a bound of the error of f32 arithmetic on
// the same operands. Each operation propagates its operands' errors and adds
// one rounding of its own result (standard running error analysis), so that the
// bound follows from the formula alone. A fused multiply-add rounds less often
// and is within the bound.
struct Bounded {
  double value = 0;
  double error = 0;
};

// Returns an f32 operand, which is exact.
inline Bounded Exact(double value) { return {value, 0}; }

inline Bounded RoundedOnce(double value, double passed_on) {
  return {value, passed_on + kF32Roundoff * (std::fabs(value) + passed_on) +
                     kF32Smallest};
}

// Returns a number that is rounded to f32 before its use.
inline Bounded Constant(double value) { return RoundedOnce(value, 0); }

inline Bounded operator+(Bounded a, Bounded b) {
  return RoundedOnce(a.value + b.value, a.error + b.error);
}

inline Bounded operator-(Bounded a, Bounded b) {
  return a + Bounded{-b.value, b.error};
}

inline Bounded operator*(Bounded a, Bounded b) {
  return RoundedOnce(a.value * b.value, std::fabs(a.value) * b.error +
                                            std::fabs(b.value) * a.error +
                                            a.error * b.error);
}

// The error is infinite if the divisor may be 0.
inline Bounded operator/(Bounded a, Bounded b) {
  const double quotient = a.value / b.value;
  if (std::fabs(b.value) <= b.error) return {quotient, INFINITY};
  return RoundedOnce(quotient, (a.error + std::fabs(quotient) * b.error) /
                                   (std::fabs(b.value) - b.error));
}

inline Bounded Root(Bounded a) {
  const double root = std::sqrt(a.value);
  const double below = root - std::sqrt(std::max(a.value - a.error, 0.0));
  const double above = std::sqrt(a.value + a.error) - root;
  return RoundedOnce(root, std::max(below, above));
}

}  // namespace convgrad::testing_support
