#include "backends/core/error_bound.h"

#include <algorithm>
#include <cmath>

namespace convgrad {
namespace {

double SmallestStep(const ConvOperation& operation, DataType result) {
  if (OperandDtype(operation) == DataType::kBF16) return std::ldexp(1, -126);
  return std::ldexp(1, result == DataType::kF16 ? -24 : -149);
}

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
    : scale_(std::fabs(result.scale)),
      rounding_(1.01 * UnitRoundoff(result.descriptor.dtype)),
      accumulation_(
          4 *
          std::sqrt(ProductsPerElement(operation.problem, result.which) + 2) *
          std::ldexp(1, -24)),
      smallest_step_(SmallestStep(operation, result.descriptor.dtype)) {}

double ErrorBound::Allowed(double ref, double spread) const {
  return scale_ * (rounding_ * std::fabs(ref) + accumulation_ * spread) +
         smallest_step_;
}

}  // namespace convgrad
