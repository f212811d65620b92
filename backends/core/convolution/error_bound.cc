#include "backends/core/convolution/error_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace convgrad {
namespace {

double SmallestStep(const ConvOperation& operation, DataType result) {
  if (operation.dtype() == DataType::kBF16) return std::ldexp(1, -126);
  return std::ldexp(1, result == DataType::kF16 ? -24 : -149);
}

// Returns the smallest number that rounds to Inf: half a step above the largest
// finite one.
double OverflowOf(DataType result) {
  return std::ldexp(1 - UnitRoundoff(result) / 2,
                    result == DataType::kF16 ? 16 : 128);
}

// From this spread on, f32 sums may be Inf before the result is stored.
constexpr double kOverflowingSpread = 0x1p127;

}  // namespace

double ProductsPerElement(const ConvProblem& problem, Result which) {
  double kernel = 1, mirrored_out = 1;
  for (const SpatialAxis& axis : problem.axes) {
    kernel *= axis.kernel;
    mirrored_out *= problem.transposed ? axis.in : axis.out;
  }
  switch (which) {
    case Result::kOutput:
      return static_cast<double>(problem.in_channels) / problem.groups * kernel;
    case Result::kGradInput:
      return static_cast<double>(problem.out_channels) / problem.groups *
             kernel;
    case Result::kGradWeight:
      return problem.batch * mirrored_out;
    case Result::kGradBias: {
      const Dims bias = DimsOf(problem, Result::kGradBias);
      double summed = 1;
      for (int64_t extent : OutputDims(problem)) summed *= extent;
      for (int64_t extent : bias) summed /= std::max<int64_t>(extent, 1);
      return summed;
    }
    case Result::kGradResidual:
      return 1;
  }
  return 1;
}

ErrorBound::ErrorBound(const ConvOperation& operation,
                       const ResultRequest& result)
    : scale_(result.scale),
      rounding_(1.01 * UnitRoundoff(result.descriptor.dtype)),
      accumulation_(
          4 *
          std::sqrt(ProductsPerElement(operation.problem, result.which) + 2) *
          std::ldexp(1, -24)),
      smallest_step_(SmallestStep(operation, result.descriptor.dtype)),
      overflow_(OverflowOf(result.descriptor.dtype)) {}

double ErrorBound::Allowed(double ref, double spread) const {
  return std::fabs(scale_) *
             (rounding_ * std::fabs(ref) + accumulation_ * spread) +
         smallest_step_;
}

double ErrorBound::Share(double found, double ref, double spread) const {
  constexpr double kNotAllowed = std::numeric_limits<double>::infinity();
  if (!std::isfinite(ref)) {
    // With a scale of 0, an implementation may return 0 without computing.
    return std::isfinite(found) && scale_ != 0 ? kNotAllowed : 0;
  }
  const double expected = scale_ * ref;
  const double allowed = Allowed(ref, spread);
  if (std::isfinite(found)) return std::fabs(found - expected) / allowed;
  if (spread >= kOverflowingSpread) return 0;
  const bool overflows = std::isinf(found) &&
                         std::signbit(found) == std::signbit(expected) &&
                         std::fabs(expected) + allowed >= overflow_;
  return overflows ? 0 : kNotAllowed;
}

}  // namespace convgrad
