// Computes layer_norm, rms_norm, group_norm, softmax and log_softmax.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/reference/exact_operators.h"

namespace convgrad {
namespace {

// Positions of a norm's operands.
enum Position { kX, kWeight, kBias };

// A norm's operand as rows, which are normalized separately.
struct NormRows {
  explicit NormRows(const StepData& data) {
    const Dims& x = data.dims(kX);
    if (data.step->op == Operator::kGroupNorm) {
      count = x[0] * IntAttribute(*data.step, "groups");
      length = CountOf(x) / count;
      parameters = x[1];
      positions = ChannelView(x).positions;
      return;
    }
    const int64_t axes = IntAttribute(*data.step, "axes");
    for (int64_t i = std::ssize(x) - axes; i < std::ssize(x); ++i) {
      length *= x[i];
    }
    count = CountOf(x) / length;
    parameters = length;
  }

  // Returns the index of the parameter's number that belongs to an element.
  size_t ParameterOf(size_t element) const {
    return element / positions % parameters;
  }

  int64_t count;
  int64_t length = 1;
  int64_t parameters;     // numbers in a parameter
  int64_t positions = 1;  // contiguous elements that share a number
};

bool IsCentred(const StepData& data) {
  return data.step->op != Operator::kRmsNorm;
}

// Returns (x - mean) / deviation by row, without the mean unless the norm is
// centred. Sets `*inverse` to 1 / deviation of each row.
Values NormalsOf(const StepData& data, Values* inverse) {
  const NormRows rows(data);
  const double eps = FloatAttribute(*data.step, "eps");
  const auto length = static_cast<double>(rows.length);
  Values normals;
  for (int64_t row = 0; row < rows.count; ++row) {
    const auto x = data.operands[kX].subspan(row * rows.length, rows.length);
    double mean = 0, squares = 0;
    if (IsCentred(data)) {
      for (const double value : x) mean += value;
      mean /= length;
    }
    for (const double value : x) squares += (value - mean) * (value - mean);
    inverse->push_back(1 / std::sqrt(squares / length + eps));
    for (const double value : x) {
      normals.push_back((value - mean) * inverse->back());
    }
  }
  data.WriteIntermediate(inverse);
  data.WriteIntermediate(&normals);
  return normals;
}

Values NormForward(const StepData& data) {
  const NormRows rows(data);
  Values inverse;
  Values y = NormalsOf(data, &inverse);
  for (size_t i = 0; i < y.size(); ++i) {
    const size_t at = rows.ParameterOf(i);
    if (data.Has(kWeight)) y[i] *= data.operands[kWeight][at];
    if (data.Has(kBias)) y[i] += data.operands[kBias][at];
  }
  return y;
}

// Adds dx of one row, from the gradients of its normalized elements.
void AddRowGradient(absl::Span<const double> gradient,
                    absl::Span<const double> normals, bool is_centred,
                    double inverse, Values* dx) {
  double sum = 0, product = 0;
  for (size_t i = 0; i < gradient.size(); ++i) {
    sum += gradient[i];
    product += gradient[i] * normals[i];
  }
  const auto length = static_cast<double>(gradient.size());
  if (!is_centred) sum = 0;
  for (size_t i = 0; i < gradient.size(); ++i) {
    dx->push_back((gradient[i] - (sum + normals[i] * product) / length) *
                  inverse);
  }
}

StepGradients NormBackward(const StepData& data,
                           absl::Span<const double> gradient) {
  const NormRows rows(data);
  Values inverse;
  const Values normals = NormalsOf(data, &inverse);
  StepGradients gradients(data.operands.size());
  Values weighted(gradient.begin(), gradient.end());
  Values weight_gradient(rows.parameters), bias_gradient(rows.parameters);
  for (size_t i = 0; i < weighted.size(); ++i) {
    const size_t column = rows.ParameterOf(i);
    weight_gradient[column] += gradient[i] * normals[i];
    bias_gradient[column] += gradient[i];
    if (data.Has(kWeight)) weighted[i] *= data.operands[kWeight][column];
  }
  data.WriteIntermediate(&weighted);
  for (int64_t row = 0; row < rows.count; ++row) {
    const int64_t first = row * rows.length;
    AddRowGradient(absl::MakeSpan(weighted).subspan(first, rows.length),
                   absl::MakeSpan(normals).subspan(first, rows.length),
                   IsCentred(data), inverse[row], &gradients[kX]);
  }
  if (data.Wants(kWeight)) gradients[kWeight] = weight_gradient;
  if (data.Wants(kBias)) gradients[kBias] = bias_gradient;
  return gradients;
}

// Calls visit(first, stride, length) for each row of a softmax: its elements
// are first + i * stride.
template <typename Visit>
void ForEachRow(const StepData& data, const Visit& visit) {
  const Dims& x = data.dims(0);
  const size_t axis = AxisOf(data);
  int64_t stride = 1;
  for (size_t i = axis + 1; i < x.size(); ++i) stride *= x[i];
  const int64_t block = stride * x[axis];
  for (int64_t first = 0; first < CountOf(x); first += block) {
    for (int64_t i = 0; i < stride; ++i) visit(first + i, stride, x[axis]);
  }
}

bool IsLogarithm(const StepData& data) {
  return data.step->op == Operator::kLogSoftmax;
}

Values SoftmaxForward(const StepData& data) {
  const auto x = data.operands[0];
  Values y(x.size());
  ForEachRow(data, [&](int64_t first, int64_t stride, int64_t length) {
    double largest = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t i = 0; i < length; ++i) {
      largest = std::max(largest, x[first + i * stride]);
    }
    for (int64_t i = 0; i < length; ++i) {
      sum += std::exp(x[first + i * stride] - largest);
    }
    for (int64_t i = 0; i < length; ++i) {
      const double above = x[first + i * stride] - largest;
      y[first + i * stride] =
          IsLogarithm(data) ? above - std::log(sum) : std::exp(above) / sum;
    }
  });
  return y;
}

StepGradients SoftmaxBackward(const StepData& data,
                              absl::Span<const double> gradient) {
  Values dx(gradient.size());
  ForEachRow(data, [&](int64_t first, int64_t stride, int64_t length) {
    double sum = 0;
    for (int64_t i = 0; i < length; ++i) {
      const int64_t at = first + i * stride;
      sum += IsLogarithm(data) ? gradient[at] : gradient[at] * data.result[at];
    }
    for (int64_t i = 0; i < length; ++i) {
      const int64_t at = first + i * stride;
      dx[at] = IsLogarithm(data)
                   ? gradient[at] - std::exp(data.result[at]) * sum
                   : data.result[at] * (gradient[at] - sum);
    }
  });
  return {dx};
}

}  // namespace

std::vector<ExactOperator> ExactTokens() {
  return {{Operator::kLayerNorm, &NormForward, &NormBackward},
          {Operator::kRmsNorm, &NormForward, &NormBackward},
          {Operator::kGroupNorm, &NormForward, &NormBackward},
          {Operator::kSoftmax, &SoftmaxForward, &SoftmaxBackward},
          {Operator::kLogSoftmax, &SoftmaxForward, &SoftmaxBackward}};
}

}  // namespace convgrad
