#include "tests/conformance/programs/program_accuracy.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "backends/reference/exact_operators.h"

namespace convgrad::testing_support {
namespace {

constexpr int kPerturbedRuns = 8;
constexpr double kFactor = 6, kFastFactor = 12;
// Roundoffs of the tensor's own size that are always allowed.
constexpr double kOwnRoundoffs = 4;

// Returns a number from [-1, 1) that depends only on `value` and `seed`.
double UnitOf(double value, uint64_t seed) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  bits = (bits ^ (bits >> 29) ^ seed << 56) * 0x9e3779b97f4a7c15u;
  bits = (bits ^ (bits >> 32)) * 0x94d049bb133111ebu;
  return static_cast<double>(bits >> 11) / 0x1p52 - 1;
}

// Multiplies each number by 1 + u * r with r from [-1, 1]. Odd runs use a
// random r. Even runs use the same r for equal numbers, because these round
// alike, so that the error of their sum grows with its length.
class Perturbation {
 public:
  Perturbation(DataType compute_dtype, uint64_t run)
      : compute_(UnitRoundoff(compute_dtype)), run_(run), random_(run) {}

  // Operands are exact; their random errors stand for those of sums.
  void Apply(Precision precision, Values* values) {
    const double roundoff = precision == Precision::kCompute
                                ? compute_
                                : UnitRoundoff(DataType::kF32);
    std::uniform_real_distribution<double> unit(-1, 1);
    for (double& value : *values) {
      const double r = run_ % 2 == 1 ? unit(random_) : UnitOf(value, run_);
      value *= 1 + roundoff * r;
    }
  }

 private:
  double compute_;
  uint64_t run_;
  std::mt19937_64 random_;
};

void WriteAsItIs(Precision, Values*) {}

// Rounds as a backend would that rounds every number that it writes.
void Round(DataType compute_dtype, Precision precision, Values* values) {
  const bool is_computed =
      precision == Precision::kCompute || precision == Precision::kOperand;
  const DataType dtype = is_computed ? compute_dtype : DataType::kF32;
  for (double& value : *values) {
    float bits;
    StoreRounded(dtype, value, &bits);
    value = LoadAsDouble(dtype, &bits);
  }
}

ProgramOutcome Evaluate(const ProgramOperation& operation,
                        const ProgramData& data, WriteFunction write) {
  ProgramOutcome outcome{data.values, data.output_gradients};
  const absl::Status status =
      ExactForward(operation, kDropoutSeed, write, &outcome.values);
  EXPECT_TRUE(status.ok()) << status;
  if (operation.request().part == ProgramPart::kTrain) {
    outcome.gradients = {{operation.program().outputs[0], {1}}};
  }
  ExactBackward(operation, kDropoutSeed, write, outcome.values,
                &outcome.gradients);
  return outcome;
}

struct Size {
  double norm = 0, largest = 0;
};

Size DistanceOf(const Values& a, const Values& b) {
  Size size;
  for (size_t i = 0; i < a.size(); ++i) {
    const double distance = std::fabs(a[i] - b[i]);
    size.norm += distance * distance;
    size.largest = std::max(size.largest, distance);
    // NaN is never within a bound.
    if (std::isnan(distance)) size.largest = size.norm = INFINITY;
  }
  size.norm = std::sqrt(size.norm);
  return size;
}

using Perturbed = std::vector<const NamedValues*>;

// Returns the error that a value or a gradient may have.
Size AllowedOf(const std::string& name, const Values& truth,
               const Perturbed& perturbed, double roundoff, double factor) {
  Size allowed = DistanceOf(truth, Values(truth.size()));
  allowed.norm *= kOwnRoundoffs * roundoff;
  allowed.largest *= kOwnRoundoffs * roundoff;
  Size spread;
  for (const NamedValues* each : perturbed) {
    const Size distance = DistanceOf(truth, each->at(name));
    spread.norm = std::max(spread.norm, distance.norm);
    spread.largest = std::max(spread.largest, distance.largest);
  }
  allowed.norm += factor * spread.norm;
  allowed.largest += factor * spread.largest;
  return allowed;
}

Perturbed ValuesOf(const ProgramTruth& truth) {
  Perturbed values;
  for (const ProgramOutcome& each : truth.perturbed) {
    values.push_back(&each.values);
  }
  return values;
}

testing::AssertionResult AreAccurate(const NamedValues& got,
                                     const NamedValues& exact,
                                     const Perturbed& perturbed,
                                     double roundoff, double factor) {
  for (const auto& [name, values] : got) {
    const Values& truth = exact.at(name);
    const Size allowed = AllowedOf(name, truth, perturbed, roundoff, factor);
    const Size error = DistanceOf(truth, values);
    if (error.norm <= allowed.norm && error.largest <= allowed.largest) {
      continue;
    }
    return testing::AssertionFailure()
           << name << ": off by " << error.norm << " (norm) and "
           << error.largest << " (largest), expected at most " << allowed.norm
           << " and " << allowed.largest;
  }
  return testing::AssertionSuccess();
}

// Returns whether slopes differ by at least the smallest kink, hardsigmoid's
// sixth. hardswish also changes between kinks.
bool Differ(const Values& a, const Values& b) {
  constexpr double kLeast = 0.16;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::fabs(a[i] - b[i]) > kLeast) return true;
  }
  return false;
}

// Moves each number by up to `margin` times the root mean square, equal numbers
// by the same amount. Zeros stay, because they are results of a ReLU or a
// dropout.
Values Moved(absl::Span<const double> values, double margin) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  const double rms = std::sqrt(squares / static_cast<double>(values.size()));
  Values moved(values.begin(), values.end());
  for (double& value : moved) {
    if (value != 0) value += margin * rms * (UnitOf(value, 0) < 0 ? -1 : 1);
  }
  return moved;
}

// Returns whether errors that IsAccurate allows may move an element of an l1
// loss to the other side of its target. Inputs and parameters have none.
bool IsNearTarget(const ProgramStep& step, const ProgramData& data,
                  const ProgramTruth& truth, double roundoff) {
  double allowed = 0;
  for (const std::string& name : step.operands) {
    if (data.values.contains(name)) continue;
    allowed += AllowedOf(name, truth.exact.values.at(name), ValuesOf(truth),
                         roundoff, kFactor)
                   .largest;
  }
  const Values& x = truth.exact.values.at(step.operands[0]);
  const Values& target = truth.exact.values.at(step.operands[1]);
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::fabs(x[i] - target[i]) <= allowed) return true;
  }
  return false;
}

}  // namespace

ProgramTruth TruthOf(const ProgramOperation& operation,
                     const ProgramData& data) {
  const DataType dtype = operation.request().compute_dtype;
  ProgramTruth truth{Evaluate(operation, data, WriteAsItIs), {}};
  truth.perturbed.push_back(
      Evaluate(operation, data, [dtype](Precision precision, Values* values) {
        Round(dtype, precision, values);
      }));
  for (int run = 0; run < kPerturbedRuns; ++run) {
    Perturbation perturbation(dtype, run + 1);
    truth.perturbed.push_back(
        Evaluate(operation, data, [&](Precision precision, Values* values) {
          perturbation.Apply(precision, values);
        }));
  }
  return truth;
}

bool IsNearKink(const ProgramOperation& operation, const ProgramData& data) {
  constexpr double kMargin = 64;
  const double roundoff = UnitRoundoff(operation.request().compute_dtype);
  const double margin = kMargin * roundoff;
  const NamedValues values = Evaluate(operation, data, WriteAsItIs).values;
  for (const ProgramStep& step : operation.program().steps) {
    if (step.op == Operator::kL1 &&
        IsNearTarget(step, data, TruthOf(operation, data), roundoff)) {
      return true;
    }
    if (!SpecOf(step.op).has_kink) continue;
    const Values ones(values.at(step.result).size(), 1);
    const auto slopes = [&](const Values& x) {
      StepData at{.step = &step,
                  .index = 0,
                  .shapes = &operation.shapes(),
                  .seed = {},
                  .operands = {x},
                  .result = values.at(step.result),
                  .wanted = {true}};
      if (!OperandAt(step, 1).empty()) {
        at.operands.push_back(values.at(step.operands[1]));
      }
      return ExactOf(step.op).backward(at, ones)[0];
    };
    const Values& x = values.at(step.operands[0]);
    if (Differ(slopes(x), slopes(Moved(x, margin))) ||
        Differ(slopes(x), slopes(Moved(x, -margin)))) {
      return true;
    }
  }
  return false;
}

testing::AssertionResult IsAccurate(const ProgramOutcome& got,
                                    const ProgramTruth& truth, DataType dtype,
                                    bool with_gradients) {
  Perturbed gradients;
  for (const ProgramOutcome& each : truth.perturbed) {
    gradients.push_back(&each.gradients);
  }
  const double roundoff = UnitRoundoff(dtype);
  const double factor = truth.is_fast ? kFastFactor : kFactor;
  const auto result = AreAccurate(got.values, truth.exact.values,
                                  ValuesOf(truth), roundoff, factor);
  if (!result || !with_gradients) return result;
  return AreAccurate(got.gradients, truth.exact.gradients, gradients, roundoff,
                     factor)
         << " (gradient)";
}

}  // namespace convgrad::testing_support
