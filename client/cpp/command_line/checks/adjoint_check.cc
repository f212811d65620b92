#include "client/cpp/command_line/checks/adjoint_check.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "backends/core/checked_math.h"

namespace convgrad {
namespace {

// Relative tolerance of an adjoint comparison in the contract, in addition to
// the results' roundoff.
constexpr double kSlack = 1e-6;
// Largest sum of independent roundings, in standard deviations.
constexpr double kDeviations = 10;
// Limit on the products for the scale; beyond it the scale is estimated.
constexpr int64_t kMaxProducts = 20'000'000;

// Splits a row-major index into one per axis.
Dims Unflatten(int64_t flat, const Dims& dims) {
  Dims index(dims.size());
  for (size_t i = dims.size(); i-- > 0;) {
    index[i] = flat % dims[i];
    flat /= dims[i];
  }
  return index;
}

int64_t Flatten(const Dims& index, const Dims& dims) {
  int64_t flat = 0;
  for (size_t i = 0; i < dims.size(); ++i) flat = flat * dims[i] + index[i];
  return flat;
}

// Returns the input position that output position `out` reads through tap
// `tap`; nullopt for padding.
std::optional<int64_t> InputPosition(const SpatialAxis& axis, bool transposed,
                                     int64_t out, int64_t tap) {
  int64_t in;
  if (transposed) {
    const int64_t scaled = out + axis.pad_begin - tap * axis.dilation;
    if (scaled % axis.stride != 0) return std::nullopt;
    in = scaled / axis.stride;
  } else {
    in = out * axis.stride - axis.pad_begin + tap * axis.dilation;
  }
  if (in < 0 || in >= axis.in) return std::nullopt;
  return in;
}

// Computes the forward pass on absolute values, one output at a time.
class AbsoluteForward {
 public:
  AbsoluteForward(const ConvProblem& problem, const std::vector<double>& input,
                  const std::vector<double>& weight)
      : problem_(problem),
        input_(input),
        weight_(weight),
        input_dims_(InputDims(problem)) {
    for (const SpatialAxis& axis : problem.axes) {
      kernel_.push_back(axis.kernel);
      taps_ *= axis.kernel;
      channel_stride_ *= axis.in;
    }
  }

  double At(const Dims& output) const {
    double sum = 0;
    Dims input = output;
    for (int64_t i = 0; i < taps_; ++i) {
      const Dims tap = Unflatten(i, kernel_);
      if (!SetInputPosition(output, tap, &input)) continue;
      sum += AtTap(output[1], i, &input);
    }
    return sum;
  }

 private:
  bool SetInputPosition(const Dims& output, const Dims& tap,
                        Dims* input) const {
    for (size_t i = 0; i < tap.size(); ++i) {
      const auto in = InputPosition(problem_.axes[i], problem_.transposed,
                                    output[i + 2], tap[i]);
      if (!in) return false;
      (*input)[i + 2] = *in;
    }
    return true;
  }

  // Returns the sum over the group's channels at one tap.
  double AtTap(int64_t channel, int64_t tap, Dims* input) const {
    const int64_t inputs = problem_.in_channels / problem_.groups;
    const int64_t outputs = problem_.out_channels / problem_.groups;
    const int64_t first = channel / outputs * inputs;
    (*input)[1] = first;
    const double* in = input_.data() + Flatten(*input, input_dims_);
    double sum = 0;
    for (int64_t c = 0; c < inputs; ++c, in += channel_stride_) {
      const int64_t pair = problem_.transposed
                               ? (first + c) * outputs + channel % outputs
                               : channel * inputs + c;
      sum += std::abs(*in * weight_[pair * taps_ + tap]);
    }
    return sum;
  }

  const ConvProblem& problem_;
  const std::vector<double>& input_;
  const std::vector<double>& weight_;
  const Dims input_dims_;
  Dims kernel_;
  int64_t taps_ = 1;
  int64_t channel_stride_ = 1;
};

// Returns sqrt(sum((a * b)^2)).
double RootOfSquares(const std::vector<double>& a,
                     const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    sum += a[i] * b[i] * a[i] * b[i];
  }
  return std::sqrt(sum);
}

}  // namespace

std::vector<double> MaskByOutput(const std::vector<double>& grad_output,
                                 const std::vector<double>& output) {
  std::vector<double> masked(grad_output.size());
  for (size_t i = 0; i < masked.size(); ++i) {
    masked[i] = output[i] > 0 ? grad_output[i] : 0;
  }
  return masked;
}

double AdjointScale(const ConvProblem& problem, const AdjointValues& values) {
  const Dims dims = OutputDims(problem);
  const int64_t outputs = *CheckedProduct(dims);
  if (outputs == 0) return 0;
  const AbsoluteForward forward(problem, *values.input, *values.weight);
  const int64_t per_output = std::max<int64_t>(
      *CheckedProduct(WeightDims(problem)) /
          (problem.transposed ? problem.in_channels : problem.out_channels),
      1);
  const int64_t samples =
      std::clamp<int64_t>(kMaxProducts / per_output, 1, outputs);
  // An odd stride doesn't coincide with extents that are powers of two.
  const int64_t stride = (outputs + samples - 1) / samples | 1;
  double sum = 0;
  int64_t count = 0;
  for (int64_t i = 0; i < outputs; i += stride, ++count) {
    sum += std::abs((*values.grad_output)[i]) * forward.At(Unflatten(i, dims));
  }
  return sum * (static_cast<double>(outputs) / static_cast<double>(count));
}

AdjointCheck CheckAdjoint(const ConvProblem& problem,
                          const AdjointValues& values) {
  AdjointCheck check;
  std::vector<double> numbers;
  double walk = 0;
  auto compare = [&](const std::vector<double>* a, const std::vector<double>* b,
                     std::optional<double>* number) {
    if (a == nullptr || b == nullptr) return;
    *number = std::inner_product(a->begin(), a->end(), b->begin(), 0.0);
    numbers.push_back(**number);
    walk = std::max(walk, RootOfSquares(*a, *b));
  };
  compare(values.output, values.grad_output, &check.forward);
  compare(values.input, values.grad_input, &check.grad_input);
  compare(values.weight, values.grad_weight, &check.grad_weight);
  for (double a : numbers) {
    for (double b : numbers) {
      const double difference = std::abs(a - b);
      // Once NaN, the difference stays NaN.
      if (!(difference <= check.difference) && !std::isnan(check.difference)) {
        check.difference = difference;
      }
    }
  }
  const double scale = AdjointScale(problem, values) + values.added_scale;
  const double rounded =
      values.independent ? std::min(scale, kDeviations * walk) : scale;
  check.bound = kSlack * scale + values.unit_roundoff * rounded;
  return check;
}

}  // namespace convgrad
