// Computes element-wise functions. Comparisons are written so that NaN
// propagates.
#include <cmath>

#include "backends/reference/exact_operators.h"

namespace convgrad {
namespace {

// The numbers of a step; parameters named `n` below.
using Numbers = const StepNumbers&;

// One element of a backward.
struct Element {
  double gradient, x, y;
};

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double Relu(double x, Numbers) { return x <= 0 ? 0 : x; }
double ReluGradient(const Element& at, Numbers) {
  return at.x <= 0 ? 0 : at.gradient;
}

double Within(double x, double low, double high) {
  const double raised = x < low ? low : x;
  return raised > high ? high : raised;
}
double Relu6(double x, Numbers) { return Within(x, 0, 6); }
double Relu6Gradient(const Element& at, Numbers) {
  return at.x <= 0 || at.x >= 6 ? 0 : at.gradient;
}

double LeakyRelu(double x, Numbers n) { return x > 0 ? x : x * n.first; }
double LeakyReluGradient(const Element& at, Numbers n) {
  return at.x > 0 ? at.gradient : at.gradient * n.first;
}

double Elu(double x, Numbers n) { return x <= 0 ? n.first * std::expm1(x) : x; }
double EluGradient(const Element& at, Numbers n) {
  return at.x > 0 ? at.gradient : at.gradient * n.first * std::exp(at.x);
}

double SigmoidOf(double x, Numbers) { return Sigmoid(x); }
double SigmoidGradient(const Element& at, Numbers) {
  return at.gradient * (at.y * (1 - at.y));
}

double Silu(double x, Numbers) { return x / (1 + std::exp(-x)); }
double SiluGradient(const Element& at, Numbers) {
  return at.gradient * (Sigmoid(at.x) * (1 + at.x * (1 - Sigmoid(at.x))));
}

double Tanh(double x, Numbers) { return std::tanh(x); }
double TanhGradient(const Element& at, Numbers) {
  return at.gradient * (1 - at.y * at.y);
}

// Returns the standard normal distribution function at x.
double NormalBelow(double x) { return 0.5 * std::erfc(-x * M_SQRT1_2); }
double Gelu(double x, Numbers) { return x * NormalBelow(x); }
double GeluGradient(const Element& at, Numbers) {
  const double density =
      std::exp(-at.x * at.x / 2) * M_2_SQRTPI * M_SQRT1_2 / 2;
  return at.gradient * (NormalBelow(at.x) + at.x * density);
}

constexpr double kGeluScale = M_SQRT2 * M_2_SQRTPI / 2;
constexpr double kGeluCubic = 0.044715;
double GeluTanh(double x, Numbers) {
  const double inner = kGeluScale * (x + kGeluCubic * x * x * x);
  return 0.5 * x * (1 + std::tanh(inner));
}
double GeluTanhGradient(const Element& at, Numbers) {
  const double x = at.x;
  const double t = std::tanh(kGeluScale * (x + kGeluCubic * x * x * x));
  const double slope = kGeluScale * (1 + 3 * kGeluCubic * x * x);
  return at.gradient * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * slope);
}

double Mish(double x, Numbers) {
  return x * std::tanh(std::log1p(std::exp(x)));
}
double MishGradient(const Element& at, Numbers) {
  const double t = std::tanh(std::log1p(std::exp(at.x)));
  return at.gradient * (t + at.x * Sigmoid(at.x) * (1 - t * t));
}

double Softplus(double x, Numbers n) {
  const double scaled = x * n.first;
  return scaled > n.second ? x : std::log1p(std::exp(scaled)) / n.first;
}
double SoftplusGradient(const Element& at, Numbers n) {
  const double scaled = at.x * n.first;
  return scaled > n.second ? at.gradient : at.gradient * Sigmoid(scaled);
}

double Hardsigmoid(double x, Numbers) { return Within(x + 3, 0, 6) / 6; }
double HardsigmoidGradient(const Element& at, Numbers) {
  return at.x > -3 && at.x < 3 ? at.gradient / 6 : 0;
}

double Hardswish(double x, Numbers) { return x * Within(x + 3, 0, 6) / 6; }
double HardswishGradient(const Element& at, Numbers) {
  if (at.x <= -3) return 0;
  return at.x >= 3 ? at.gradient : at.gradient * (at.x / 3 + 0.5);
}

double Clamp(double x, Numbers n) { return Within(x, n.first, n.second); }
double HardtanhGradient(const Element& at, Numbers n) {
  return at.x <= n.first || at.x >= n.second ? 0 : at.gradient;
}
// An infinite limit limits nothing. The gradient at NaN is 0, unlike that of a
// hardtanh.
double ClampGradient(const Element& at, Numbers n) {
  const bool is_above = std::isinf(n.first) || at.x > n.first;
  const bool is_below = std::isinf(n.second) || at.x < n.second;
  return is_above && is_below ? at.gradient : 0;
}
double Neg(double x, Numbers) { return -x; }
double NegGradient(const Element& at, Numbers) { return -at.gradient; }

double Abs(double x, Numbers) { return std::fabs(x); }
double AbsGradient(const Element& at, Numbers) {
  return at.gradient * ((at.x > 0 ? 1 : 0) - (at.x < 0 ? 1 : 0));
}

double Exp(double x, Numbers) { return std::exp(x); }
double ExpGradient(const Element& at, Numbers) { return at.gradient * at.y; }

double Sqrt(double x, Numbers) { return std::sqrt(x); }
double SqrtGradient(const Element& at, Numbers) {
  return at.gradient / (2 * at.y);
}

double Rsqrt(double x, Numbers) { return 1 / std::sqrt(x); }
double RsqrtGradient(const Element& at, Numbers) {
  return -0.5 * at.gradient * at.y * at.y * at.y;
}

double Reciprocal(double x, Numbers) { return 1 / x; }
double ReciprocalGradient(const Element& at, Numbers) {
  return -at.gradient * at.y * at.y;
}

double Log(double x, Numbers) { return std::log(x); }
double LogGradient(const Element& at, Numbers) { return at.gradient / at.x; }

// As in PyTorch, 0.5 and -0.5 are roots, which differ from powers at -0 and
// -Inf.
double Raised(double x, double exponent) {
  if (exponent == 0.5) return std::sqrt(x);
  return exponent == -0.5 ? 1 / std::sqrt(x) : std::pow(x, exponent);
}
double Pow(double x, Numbers n) { return Raised(x, n.first); }
double PowGradient(const Element& at, Numbers n) {
  if (n.first == 0) return 0;
  return at.gradient * (n.first * Raised(at.x, n.first - 1));
}

double Sin(double x, Numbers) { return std::sin(x); }
double SinGradient(const Element& at, Numbers) {
  return at.gradient * std::cos(at.x);
}
double Cos(double x, Numbers) { return std::cos(x); }
double CosGradient(const Element& at, Numbers) {
  return -at.gradient * std::sin(at.x);
}

template <double (*kFunction)(double x, Numbers n)>
Values Forward(const StepData& data) {
  const StepNumbers numbers = NumbersOf(*data.step);
  Values y;
  for (const double x : data.operands[0]) y.push_back(kFunction(x, numbers));
  return y;
}

template <double (*kGradient)(const Element& at, Numbers n)>
StepGradients Backward(const StepData& data,
                       absl::Span<const double> gradient) {
  const StepNumbers numbers = NumbersOf(*data.step);
  Values values;
  for (size_t i = 0; i < gradient.size(); ++i) {
    values.push_back(
        kGradient({gradient[i], data.operands[0][i], data.result[i]}, numbers));
  }
  return {values};
}

bool IsTanh(const StepData& data) {
  return WordAttribute(*data.step, "approximate") == "tanh";
}
Values GeluForward(const StepData& data) {
  return IsTanh(data) ? Forward<GeluTanh>(data) : Forward<Gelu>(data);
}
StepGradients GeluBackward(const StepData& data,
                           absl::Span<const double> gradient) {
  return IsTanh(data) ? Backward<GeluTanhGradient>(data, gradient)
                      : Backward<GeluGradient>(data, gradient);
}

}  // namespace

std::vector<ExactOperator> ExactActivations() {
  return {
      {Operator::kRelu, &Forward<Relu>, &Backward<ReluGradient>},
      {Operator::kRelu6, &Forward<Relu6>, &Backward<Relu6Gradient>},
      {Operator::kLeakyRelu, &Forward<LeakyRelu>, &Backward<LeakyReluGradient>},
      {Operator::kElu, &Forward<Elu>, &Backward<EluGradient>},
      {Operator::kSigmoid, &Forward<SigmoidOf>, &Backward<SigmoidGradient>},
      {Operator::kSilu, &Forward<Silu>, &Backward<SiluGradient>},
      {Operator::kTanh, &Forward<Tanh>, &Backward<TanhGradient>},
      {Operator::kGelu, &GeluForward, &GeluBackward},
      {Operator::kMish, &Forward<Mish>, &Backward<MishGradient>},
      {Operator::kSoftplus, &Forward<Softplus>, &Backward<SoftplusGradient>},
      {Operator::kHardsigmoid, &Forward<Hardsigmoid>,
       &Backward<HardsigmoidGradient>},
      {Operator::kHardswish, &Forward<Hardswish>, &Backward<HardswishGradient>},
      {Operator::kHardtanh, &Forward<Clamp>, &Backward<HardtanhGradient>},
      {Operator::kClamp, &Forward<Clamp>, &Backward<ClampGradient>},
      {Operator::kNeg, &Forward<Neg>, &Backward<NegGradient>},
      {Operator::kAbs, &Forward<Abs>, &Backward<AbsGradient>},
      {Operator::kExp, &Forward<Exp>, &Backward<ExpGradient>},
      {Operator::kSqrt, &Forward<Sqrt>, &Backward<SqrtGradient>},
      {Operator::kRsqrt, &Forward<Rsqrt>, &Backward<RsqrtGradient>},
      {Operator::kReciprocal, &Forward<Reciprocal>,
       &Backward<ReciprocalGradient>},
      {Operator::kLog, &Forward<Log>, &Backward<LogGradient>},
      {Operator::kPow, &Forward<Pow>, &Backward<PowGradient>},
      {Operator::kSin, &Forward<Sin>, &Backward<SinGradient>},
      {Operator::kCos, &Forward<Cos>, &Backward<CosGradient>}};
}

}  // namespace convgrad
