// Computes element-wise functions. Comparisons are written so that NaN
// propagates.
#include <cmath>

#include "backends/reference/exact_operators.h"

namespace convgrad {
namespace {

// The numbers of a step; parameters named `n` below.
using Numbers = const StepNumbers&;

// One element of a backward; dy is its gradient.
struct Element {
  double dy, x, y;
};

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double Within(double x, double low, double high) {
  const double raised = x < low ? low : x;
  return raised > high ? high : raised;
}

// Returns the standard normal distribution function at x.
double NormalBelow(double x) { return 0.5 * std::erfc(-x * M_SQRT1_2); }

// The tanh form of gelu.
constexpr double kGeluScale = M_SQRT2 * M_2_SQRTPI / 2;
constexpr double kGeluCubic = 0.044715;
double GeluTanh(double x) {
  return std::tanh(kGeluScale * (x + kGeluCubic * x * x * x));
}

// As in PyTorch, 0.5 and -0.5 are roots, which differ from powers at -0 and
// -Inf.
double Raised(double x, double exponent) {
  if (exponent == 0.5) return std::sqrt(x);
  return exponent == -0.5 ? 1 / std::sqrt(x) : std::pow(x, exponent);
}

// A function of each element and the gradient of its operand.
struct Function {
  Operator op;
  double (*value)(double x, Numbers n);
  double (*gradient)(const Element& at, Numbers n);
};

constexpr Function kGeluOfTanh = {
    Operator::kGelu,
    [](double x, Numbers) { return 0.5 * x * (1 + GeluTanh(x)); },
    [](const Element& at, Numbers) {
      const double x = at.x, t = GeluTanh(x);
      const double slope = kGeluScale * (1 + 3 * kGeluCubic * x * x);
      return at.dy * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * slope);
    }};

constexpr Function kFunctions[] = {
    {Operator::kRelu, [](double x, Numbers) { return x <= 0 ? 0 : x; },
     [](const Element& at, Numbers) { return at.x <= 0 ? 0 : at.dy; }},
    {Operator::kRelu6, [](double x, Numbers) { return Within(x, 0, 6); },
     [](const Element& at, Numbers) {
       return at.x <= 0 || at.x >= 6 ? 0 : at.dy;
     }},
    {Operator::kLeakyRelu,
     [](double x, Numbers n) { return x > 0 ? x : x * n.first; },
     [](const Element& at, Numbers n) {
       return at.x > 0 ? at.dy : at.dy * n.first;
     }},
    {Operator::kElu,
     [](double x, Numbers n) { return x <= 0 ? n.first * std::expm1(x) : x; },
     [](const Element& at, Numbers n) {
       return at.x > 0 ? at.dy : at.dy * n.first * std::exp(at.x);
     }},
    {Operator::kSigmoid, [](double x, Numbers) { return Sigmoid(x); },
     [](const Element& at, Numbers) { return at.dy * (at.y * (1 - at.y)); }},
    {Operator::kSilu, [](double x, Numbers) { return x / (1 + std::exp(-x)); },
     [](const Element& at, Numbers) {
       return at.dy * (Sigmoid(at.x) * (1 + at.x * (1 - Sigmoid(at.x))));
     }},
    {Operator::kTanh, [](double x, Numbers) { return std::tanh(x); },
     [](const Element& at, Numbers) { return at.dy * (1 - at.y * at.y); }},
    {Operator::kGelu, [](double x, Numbers) { return x * NormalBelow(x); },
     [](const Element& at, Numbers) {
       const double density =
           std::exp(-at.x * at.x / 2) * M_2_SQRTPI * M_SQRT1_2 / 2;
       return at.dy * (NormalBelow(at.x) + at.x * density);
     }},
    {Operator::kMish,
     [](double x, Numbers) { return x * std::tanh(std::log1p(std::exp(x))); },
     [](const Element& at, Numbers) {
       const double t = std::tanh(std::log1p(std::exp(at.x)));
       return at.dy * (t + at.x * Sigmoid(at.x) * (1 - t * t));
     }},
    {Operator::kSoftplus,
     [](double x, Numbers n) {
       const double scaled = x * n.first;
       return scaled > n.second ? x : std::log1p(std::exp(scaled)) / n.first;
     },
     [](const Element& at, Numbers n) {
       const double scaled = at.x * n.first;
       return scaled > n.second ? at.dy : at.dy * Sigmoid(scaled);
     }},
    {Operator::kHardsigmoid,
     [](double x, Numbers) { return Within(x + 3, 0, 6) / 6; },
     [](const Element& at, Numbers) {
       return at.x > -3 && at.x < 3 ? at.dy / 6 : 0;
     }},
    {Operator::kHardswish,
     [](double x, Numbers) { return x * Within(x + 3, 0, 6) / 6; },
     [](const Element& at, Numbers) {
       const double gradient = at.x >= 3 ? at.dy : at.dy * (at.x / 3 + 0.5);
       return at.x <= -3 ? 0 : gradient;
     }},
    {Operator::kHardtanh,
     [](double x, Numbers n) { return Within(x, n.first, n.second); },
     [](const Element& at, Numbers n) {
       return at.x <= n.first || at.x >= n.second ? 0 : at.dy;
     }},
    // An infinite limit limits nothing. The gradient at NaN is 0, unlike that
    // of a hardtanh.
    {Operator::kClamp,
     [](double x, Numbers n) { return Within(x, n.first, n.second); },
     [](const Element& at, Numbers n) {
       const bool is_above = std::isinf(n.first) || at.x > n.first;
       const bool is_below = std::isinf(n.second) || at.x < n.second;
       return is_above && is_below ? at.dy : 0;
     }},
    {Operator::kNeg, [](double x, Numbers) { return -x; },
     [](const Element& at, Numbers) { return -at.dy; }},
    {Operator::kAbs, [](double x, Numbers) { return std::fabs(x); },
     [](const Element& at, Numbers) {
       return at.dy * ((at.x > 0 ? 1 : 0) - (at.x < 0 ? 1 : 0));
     }},
    {Operator::kExp, [](double x, Numbers) { return std::exp(x); },
     [](const Element& at, Numbers) { return at.dy * at.y; }},
    {Operator::kSqrt, [](double x, Numbers) { return std::sqrt(x); },
     [](const Element& at, Numbers) { return at.dy / (2 * at.y); }},
    {Operator::kRsqrt, [](double x, Numbers) { return 1 / std::sqrt(x); },
     [](const Element& at, Numbers) {
       return -0.5 * at.dy * at.y * at.y * at.y;
     }},
    {Operator::kReciprocal, [](double x, Numbers) { return 1 / x; },
     [](const Element& at, Numbers) { return -at.dy * at.y * at.y; }},
    {Operator::kLog, [](double x, Numbers) { return std::log(x); },
     [](const Element& at, Numbers) { return at.dy / at.x; }},
    {Operator::kPow, [](double x, Numbers n) { return Raised(x, n.first); },
     [](const Element& at, Numbers n) {
       const double slope = n.first * Raised(at.x, n.first - 1);
       return n.first == 0 ? 0 : at.dy * slope;
     }},
    {Operator::kSin, [](double x, Numbers) { return std::sin(x); },
     [](const Element& at, Numbers) { return at.dy * std::cos(at.x); }},
    {Operator::kCos, [](double x, Numbers) { return std::cos(x); },
     [](const Element& at, Numbers) { return -at.dy * std::sin(at.x); }}};

const Function& FunctionOf(const ProgramStep& step) {
  if (WordAttribute(step, "approximate") == "tanh") return kGeluOfTanh;
  return RowOf(kFunctions, step.op);
}

Values Forward(const StepData& data) {
  const Function& function = FunctionOf(*data.step);
  const StepNumbers numbers = NumbersOf(*data.step);
  Values y;
  for (const double x : data.operands[0]) {
    y.push_back(function.value(x, numbers));
  }
  return y;
}

StepGradients Backward(const StepData& data,
                       absl::Span<const double> gradient) {
  const Function& function = FunctionOf(*data.step);
  const StepNumbers numbers = NumbersOf(*data.step);
  Values values;
  for (size_t i = 0; i < gradient.size(); ++i) {
    values.push_back(function.gradient(
        {gradient[i], data.operands[0][i], data.result[i]}, numbers));
  }
  return {values};
}

}  // namespace

std::vector<ExactOperator> ExactActivations() {
  return OperatorsOf(kFunctions, &Forward, &Backward);
}

}  // namespace convgrad
