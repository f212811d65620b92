// `ProblemData` holds the operands of one problem for all its runs, and the
// expected results.
#pragma once

#include <map>
#include <vector>

#include "tests/cases/case_target.h"
#include "tests/cases/oracle/element_oracle.h"
#include "tests/conformance/comparison.h"

namespace convgrad::testing_support {

// The kind of numbers: integers of the largest amplitude for which every sum of
// absolute products stays below 2^24, or zero-mean reals with all digits of the
// dtype.
enum class Numbers { kIntegers, kReals };

// Operands depend only on seed and position. Expectations on integers are made
// once and hold for every dtype and layout. Not thread-safe.
class ProblemData {
 public:
  explicit ProblemData(const ConvProblem& problem);

  const ConvProblem& problem() const { return problem_; }

  // Returns the packer of operands for runs on `numbers`.
  PackOperand Packer(Numbers numbers, DataType dtype) const;

  FilledOperands Operands(Numbers numbers, DataType dtype) const;

  // Returns the expectation of a whole result.
  const ExpectedResult& Whole(const ConvOperation& operation, Result which,
                              Numbers numbers, DataType dtype);

  // Returns the expectation at each of Elements(which), before the bias.
  // Requires: no ReLU, no residual.
  const std::vector<ElementSum>& Sums(const ConvProblem& problem, Result which,
                                      Numbers numbers, DataType dtype);
  const std::vector<Dims>& Elements(Result which, int target);

 private:
  const ValueTable& Table(Numbers numbers, DataType dtype) const;

  const ConvProblem problem_;
  int amplitude_ = 4;
  std::array<FillIndices, kOperandCount> indices_;
  std::map<Result, ExpectedResult> integer_results_;
  ExpectedResult real_result_;
  std::map<Result, std::vector<Dims>> elements_;
  std::map<Result, std::vector<ElementSum>> integer_sums_;
  std::vector<ElementSum> real_sums_;
};

}  // namespace convgrad::testing_support
