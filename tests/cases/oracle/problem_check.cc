#include "tests/cases/oracle/problem_check.h"

#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/convolution/error_bound.h"

namespace convgrad::testing_support {
namespace {

OperationSpec SpecOf(const ConvProblem& problem, const RunKind& kind,
                     std::vector<Result> results) {
  OperationSpec spec;
  spec.problem = problem;
  spec.results = std::move(results);
  spec.dtype = spec.side_dtype = kind.dtype;
  spec.result_dtype = kind.result_dtype;
  spec.layouts = kind.layouts;
  return spec;
}

std::vector<std::vector<Result>> BothDirections() {
  return {{Result::kOutput}, GradientSets()[0]};
}

// Calls check(stored) for every result of the answers.
template <typename Check>
void ForEachResult(const std::optional<Answer>& answer, const Check& check) {
  if (!answer) return;
  for (size_t i = 0; i < answer->operation.results.size(); ++i) {
    check(StoredResult{&answer->operation, &answer->operation.results[i],
                       answer->results[i].data()});
  }
}

// Returns <operand, result>. Requires: the result is f32 and in logical order.
double InnerProduct(const FilledOperand& operand, const StoredResult& result) {
  const auto* values = static_cast<const float*>(result.data);
  double sum = 0;
  for (size_t i = 0; i < operand.indices->size(); ++i) {
    sum += operand.At(static_cast<int64_t>(i)) * values[i];
  }
  return sum;
}

// `AdjointSums` holds the three numbers that must be equal.
class AdjointSums {
 public:
  explicit AdjointSums(const FilledOperands& operands) : operands_(operands) {}

  void Take(const StoredResult& got) {
    switch (got.request->which) {
      case Result::kOutput:
        return Set(&forward_, Operand::kGradOutput, got);
      case Result::kGradInput:
        return Set(&input_, Operand::kInput, got);
      case Result::kGradWeight:
        return Set(&weight_, Operand::kWeight, got);
      default:
        return;
    }
  }

  // Compares the sums that are set.
  Outcome Compare(const ConvProblem& problem) const {
    std::optional<double> first;
    for (const auto& sum : {forward_, input_, weight_}) {
      if (!sum) continue;
      if (!first) first = sum;
      if (*sum == *first) continue;
      return Failed(absl::StrCat(ToString(problem), "\n  not adjoint: <y,dy> ",
                                 Text(forward_), ", <x,dx> ", Text(input_),
                                 ", <w,dw> ", Text(weight_)));
    }
    return {};
  }

 private:
  void Set(std::optional<double>* sum, Operand operand,
           const StoredResult& got) {
    *sum = InnerProduct(operands_[static_cast<size_t>(operand)], got);
  }

  static std::string Text(const std::optional<double>& sum) {
    return sum ? absl::StrCat(*sum) : "none";
  }

  FilledOperands operands_;
  std::optional<double> forward_, input_, weight_;
};

// Compares the chosen elements of one result.
Outcome CheckElements(const StoredResult& got, const RunKind& kind,
                      const std::vector<Dims>& elements,
                      const std::vector<ElementSum>& sums) {
  const TensorDescriptor& tensor = got.request->descriptor;
  const auto* bytes = static_cast<const std::byte*>(got.data);
  const ErrorBound bound(*got.operation, *got.request);
  Outcome outcome;
  outcome.elements = static_cast<int64_t>(elements.size());
  for (size_t i = 0; i < elements.size(); ++i) {
    const double value =
        LoadAsDouble(tensor.dtype, bytes + OffsetOf(tensor, elements[i]) *
                                               ByteSizeOf(tensor.dtype));
    double expected = sums[i].value, allowed = 0;
    if (kind.numbers == Numbers::kIntegers) {
      expected = RoundedTo(tensor.dtype, expected);
    } else {
      allowed = bound.Allowed(
          expected, std::max(std::fabs(expected), std::sqrt(sums[i].squares)));
    }
    if (std::fabs(value - expected) <= allowed || value == expected) continue;
    outcome.Add(Failed(absl::StrCat(
        ToString(*got.operation), "\n  ", NameOf(got.request->which), " at ",
        ToString(absl::MakeConstSpan(elements[i])), ": got ", value,
        ", expected ", expected, " within ", allowed)));
    return outcome;
  }
  return outcome;
}

}  // namespace

Outcome CheckWhole(const CaseTarget& target, ProblemData* data,
                   const RunKind& kind) {
  Outcome outcome;
  for (const std::vector<Result>& results : BothDirections()) {
    const std::optional<Answer> answer =
        target.Ask(SpecOf(data->problem(), kind, results),
                   data->Packer(kind.numbers, kind.dtype), &outcome);
    ForEachResult(answer, [&](const StoredResult& got) {
      const ExpectedResult& expected = data->Whole(
          *got.operation, got.request->which, kind.numbers, kind.dtype);
      outcome.elements += static_cast<int64_t>(expected.value.size());
      if (kind.numbers == Numbers::kIntegers) {
        const auto exact = IsExactly(got, expected);
        if (!exact) outcome.Add(Failed(exact.message()));
        return;
      }
      const auto near = IsWithinBound(got, expected, DataKind::kZeroMean);
      if (!near) outcome.Add(Failed(near.message()));
      const auto norm = IsWithinNorm(got, expected);
      if (!norm) outcome.Add(Failed(norm.message()));
    });
  }
  return outcome;
}

Outcome CheckSampled(const CaseTarget& target, ProblemData* data,
                     const RunKind& kind, int count) {
  ConvProblem problem = data->problem();
  problem.residual = problem.relu = false;
  const bool adjoint = kind.numbers == Numbers::kIntegers &&
                       kind.result_dtype == DataType::kF32 &&
                       kind.layouts.name == RowMajorLayouts()[0].name;
  if (adjoint) problem.bias.reset();
  AdjointSums sums(data->Operands(kind.numbers, kind.dtype));
  Outcome outcome;
  for (const std::vector<Result>& results : BothDirections()) {
    const std::optional<Answer> answer =
        target.Ask(SpecOf(problem, kind, results),
                   data->Packer(kind.numbers, kind.dtype), &outcome);
    ForEachResult(answer, [&](const StoredResult& got) {
      const Result which = got.request->which;
      const std::vector<Dims>& elements = data->Elements(which, count);
      outcome.Add(
          CheckElements(got, kind, elements,
                        data->Sums(problem, which, kind.numbers, kind.dtype)));
      if (adjoint) sums.Take(got);
    });
  }
  if (adjoint) outcome.Add(sums.Compare(problem));
  return outcome;
}

}  // namespace convgrad::testing_support
