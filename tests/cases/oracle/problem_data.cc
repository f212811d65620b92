#include "tests/cases/oracle/problem_data.h"

#include <algorithm>

#include "backends/core/convolution/error_bound.h"

namespace convgrad::testing_support {
namespace {

constexpr double kExactSums = 1 << 24;

int64_t CountOf(const Dims& dims) {
  int64_t count = 1;
  for (int64_t extent : dims) count *= extent;
  return count;
}

int AmplitudeFor(const ConvProblem& problem) {
  double products = 0;
  for (Result which : kAllResults) {
    products = std::max(products, ProductsPerElement(problem, which));
  }
  for (int amplitude : {4, 2}) {
    if ((products + 2) * amplitude * amplitude < kExactSums) return amplitude;
  }
  return 1;
}

}  // namespace

ProblemData::ProblemData(const ConvProblem& problem)
    : problem_(problem), amplitude_(AmplitudeFor(problem)) {
  for (Operand which : kAllOperands) {
    if (which == Operand::kBias && !problem.bias) continue;
    if (which == Operand::kResidual && !problem.residual) continue;
    if (which == Operand::kOutput && !problem.relu) continue;
    const auto i = static_cast<size_t>(which);
    indices_[i] = RandomIndices(CountOf(DimsOf(problem, which)), i);
  }
}

const ValueTable& ProblemData::Table(Numbers numbers, DataType dtype) const {
  return numbers == Numbers::kIntegers ? ValueTable::Integers(dtype, amplitude_)
                                       : ValueTable::Reals(dtype);
}

PackOperand ProblemData::Packer(Numbers numbers, DataType dtype) const {
  return [this, numbers, dtype](Operand which, const TensorDescriptor& tensor) {
    return PackFilled(tensor, indices_[static_cast<size_t>(which)],
                      Table(numbers, dtype));
  };
}

FilledOperands ProblemData::Operands(Numbers numbers, DataType dtype) const {
  FilledOperands operands;
  for (size_t i = 0; i < operands.size(); ++i) {
    operands[i] = {&indices_[i], &Table(numbers, dtype)};
  }
  return operands;
}

const ExpectedResult& ProblemData::Whole(const ConvOperation& operation,
                                         Result which, Numbers numbers,
                                         DataType dtype) {
  const auto make = [&](auto expect) {
    ExactOperands operands;
    for (Operand operand : kAllOperands) {
      if (!operation.operand(operand)) continue;
      const auto i = static_cast<size_t>(operand);
      operands[i] = ValuesOf(indices_[i], Table(numbers, dtype));
    }
    return expect(operation, which, operands);
  };
  if (numbers == Numbers::kReals) {
    real_result_ = make(&ExpectZeroMean);
    return real_result_;
  }
  const auto [entry, is_new] = integer_results_.try_emplace(which);
  if (is_new) entry->second = make(&ExpectExact);
  return entry->second;
}

const std::vector<Dims>& ProblemData::Elements(Result which, int target) {
  const auto [entry, is_new] = elements_.try_emplace(which);
  if (is_new) entry->second = ChooseElements(problem_, which, target);
  return entry->second;
}

const std::vector<ElementSum>& ProblemData::Sums(const ConvProblem& problem,
                                                 Result which, Numbers numbers,
                                                 DataType dtype) {
  const auto compute = [&](std::vector<ElementSum>* sums) {
    const FilledOperands operands = Operands(numbers, dtype);
    sums->clear();
    for (const Dims& index : elements_.at(which)) {
      sums->push_back(ElementOf(problem, which, index, operands));
    }
  };
  if (numbers == Numbers::kReals) {
    compute(&real_sums_);
    return real_sums_;
  }
  const auto [entry, is_new] = integer_sums_.try_emplace(which);
  if (is_new) compute(&entry->second);
  return entry->second;
}

}  // namespace convgrad::testing_support
