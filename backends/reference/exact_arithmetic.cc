// Computes arithmetic and comparisons of two operands, of which the second one
// may be broadcast or a constant, and choices by their results.
#include <cmath>

#include "backends/reference/exact_operators.h"

namespace convgrad {
namespace {

// The operands' elements of one element of the result, and its gradient.
struct Pair {
  double a, b;
  double gradient = 0;
};

// An operand, or the constant in its place, as broadcast to the result.
struct Side {
  double At(size_t i) const {
    return indices.empty() ? constant : values[indices[i]];
  }

  absl::Span<const double> values;
  std::vector<int64_t> indices;  // by element of the result
  double constant;
};

Side SideOf(const StepData& data, size_t position) {
  if (!data.Has(position)) {
    return {{}, {}, FloatAttribute(*data.step, "other")};
  }
  return {data.operands[position],
          BroadcastOffsets(data.dims(position), data.result_dims()), 0};
}

// A constant in the place of b is rounded to `Constant` first.
template <double (*kFunction)(const Pair& at), typename Constant = double>
Values Forward(const StepData& data) {
  const Side a = SideOf(data, 0);
  Side b = SideOf(data, 1);
  b.constant = static_cast<Constant>(b.constant);
  Values y;
  for (size_t i = 0; i < a.indices.size(); ++i) {
    y.push_back(kFunction({a.At(i), b.At(i)}));
  }
  return y;
}

template <double (*kOfA)(const Pair& at), double (*kOfB)(const Pair& at)>
StepGradients Backward(const StepData& data,
                       absl::Span<const double> gradient) {
  const Side a = SideOf(data, 0), b = SideOf(data, 1);
  StepGradients gradients = ZeroGradients(data);
  for (size_t i = 0; i < gradient.size(); ++i) {
    const Pair at = {a.At(i), b.At(i), gradient[i]};
    gradients[0][a.indices[i]] += kOfA(at);
    if (data.Has(1)) gradients[1][b.indices[i]] += kOfB(at);
  }
  return gradients;
}

double Pass(const Pair& at) { return at.gradient; }
double Negated(const Pair& at) { return -at.gradient; }

double Sum(const Pair& at) { return at.a + at.b; }
double Difference(const Pair& at) { return at.a - at.b; }

double Product(const Pair& at) { return at.a * at.b; }
double TimesA(const Pair& at) { return at.gradient * at.a; }
double TimesB(const Pair& at) { return at.gradient * at.b; }

double Quotient(const Pair& at) { return at.a / at.b; }
double OverB(const Pair& at) { return at.gradient / at.b; }
double OfDivisor(const Pair& at) { return -at.gradient * (at.a / at.b / at.b); }

// Returns half of the gradient if the operands are equal.
double Shared(const Pair& at) {
  return at.a == at.b ? at.gradient / 2 : at.gradient;
}
double IfNotLess(const Pair& at) { return at.a < at.b ? 0 : Shared(at); }
double IfNotGreater(const Pair& at) { return at.a > at.b ? 0 : Shared(at); }
double Maximum(const Pair& at) {
  return at.a > at.b || std::isnan(at.a) ? at.a : at.b;
}
double Minimum(const Pair& at) {
  return at.a < at.b || std::isnan(at.a) ? at.a : at.b;
}

// Returns the prelu; b is the slope below 0.
double Prelu(const Pair& at) { return at.a > 0 ? at.a : at.a * at.b; }
double PreluOfA(const Pair& at) {
  return at.a > 0 ? at.gradient : at.gradient * at.b;
}
double PreluOfB(const Pair& at) { return at.a > 0 ? 0 : at.gradient * at.a; }

double Equal(const Pair& at) { return at.a == at.b ? 1 : 0; }
double Less(const Pair& at) { return at.a < at.b ? 1 : 0; }
double LessEqual(const Pair& at) { return at.a <= at.b ? 1 : 0; }
double Greater(const Pair& at) { return at.a > at.b ? 1 : 0; }
double GreaterEqual(const Pair& at) { return at.a >= at.b ? 1 : 0; }

Values WhereForward(const StepData& data) {
  const Side condition = SideOf(data, 0), a = SideOf(data, 1),
             b = SideOf(data, 2);
  Values y;
  for (size_t i = 0; i < a.indices.size(); ++i) {
    const double chosen = condition.At(i);
    y.push_back(std::isnan(chosen) ? chosen : chosen != 0 ? a.At(i) : b.At(i));
  }
  return y;
}

StepGradients WhereBackward(const StepData& data,
                            absl::Span<const double> gradient) {
  const Side condition = SideOf(data, 0), a = SideOf(data, 1),
             b = SideOf(data, 2);
  StepGradients gradients = ZeroGradients(data);
  for (size_t i = 0; i < gradient.size(); ++i) {
    if (condition.At(i) != 0) {
      gradients[1][a.indices[i]] += gradient[i];
    } else if (data.Has(2)) {
      gradients[2][b.indices[i]] += gradient[i];
    }
  }
  return gradients;
}

}  // namespace

std::vector<ExactOperator> ExactArithmetic() {
  return {{Operator::kAdd, &Forward<Sum>, &Backward<Pass, Pass>},
          {Operator::kSub, &Forward<Difference>, &Backward<Pass, Negated>},
          {Operator::kMul, &Forward<Product>, &Backward<TimesB, TimesA>},
          {Operator::kDiv, &Forward<Quotient>, &Backward<OverB, OfDivisor>},
          {Operator::kMaximum, &Forward<Maximum>,
           &Backward<IfNotLess, IfNotGreater>},
          {Operator::kMinimum, &Forward<Minimum>,
           &Backward<IfNotGreater, IfNotLess>},
          {Operator::kPrelu, &Forward<Prelu>, &Backward<PreluOfA, PreluOfB>},
          {Operator::kEq, &Forward<Equal, float>},
          {Operator::kLt, &Forward<Less, float>},
          {Operator::kLe, &Forward<LessEqual, float>},
          {Operator::kGt, &Forward<Greater, float>},
          {Operator::kGe, &Forward<GreaterEqual, float>},
          {Operator::kWhere, &WhereForward, &WhereBackward}};
}

}  // namespace convgrad
