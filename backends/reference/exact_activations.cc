// Functions of each element by itself. Comparisons are written so that NaN goes
// through.
#include <cmath>

#include "backends/reference/exact_operators.h"

namespace convgrad {
namespace {

constexpr double kRelu6Top = 6;

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double SlopeOf(const StepData& data) {
  return FloatAttribute(*data.step, "negative_slope");
}

// An element of a backward.
struct Element {
  double gradient, x, y;
  double slope;
};

double Relu(double x, double) { return x <= 0 ? 0 : x; }
double ReluGradient(const Element& at) { return at.x <= 0 ? 0 : at.gradient; }

double Relu6(double x, double) {
  return x <= 0 ? 0 : (x >= kRelu6Top ? kRelu6Top : x);
}
double Relu6Gradient(const Element& at) {
  return at.x <= 0 || at.x >= kRelu6Top ? 0 : at.gradient;
}

double LeakyRelu(double x, double slope) { return x > 0 ? x : x * slope; }
double LeakyReluGradient(const Element& at) {
  return at.x > 0 ? at.gradient : at.gradient * at.slope;
}

double SigmoidOf(double x, double) { return Sigmoid(x); }
double SigmoidGradient(const Element& at) {
  return at.gradient * (at.y * (1 - at.y));
}

double Silu(double x, double) { return x / (1 + std::exp(-x)); }
double SiluGradient(const Element& at) {
  return at.gradient * (Sigmoid(at.x) * (1 + at.x * (1 - Sigmoid(at.x))));
}

double Tanh(double x, double) { return std::tanh(x); }
double TanhGradient(const Element& at) {
  return at.gradient * (1 - at.y * at.y);
}

template <double (*kFunction)(double x, double slope)>
Values Forward(const StepData& data) {
  const double slope = SlopeOf(data);
  Values y;
  for (const double x : data.operands[0]) y.push_back(kFunction(x, slope));
  return y;
}

template <double (*kGradient)(const Element& at)>
StepGradients Backward(const StepData& data,
                       absl::Span<const double> gradient) {
  const double slope = SlopeOf(data);
  Values values;
  for (size_t i = 0; i < gradient.size(); ++i) {
    values.push_back(
        kGradient({gradient[i], data.operands[0][i], data.result[i], slope}));
  }
  return {values};
}

}  // namespace

std::vector<ExactOperator> ExactActivations() {
  return {
      {Operator::kRelu, &Forward<Relu>, &Backward<ReluGradient>},
      {Operator::kRelu6, &Forward<Relu6>, &Backward<Relu6Gradient>},
      {Operator::kLeakyRelu, &Forward<LeakyRelu>, &Backward<LeakyReluGradient>},
      {Operator::kSigmoid, &Forward<SigmoidOf>, &Backward<SigmoidGradient>},
      {Operator::kSilu, &Forward<Silu>, &Backward<SiluGradient>},
      {Operator::kTanh, &Forward<Tanh>, &Backward<TanhGradient>}};
}

}  // namespace convgrad
