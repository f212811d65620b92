// `ProblemList` lists convolutions that an operator expects, so that the server
// can plan them in advance.
#pragma once

#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "backends/core/convolution/conv_operation.h"

namespace convgrad {

// The most problems of a list. No network has that many different layers, so a
// longer list can only be a mistake.
inline constexpr int kMaxProblems = 1000;

// Parses a text with one problem string per line. Skips empty lines and lines
// that begin with #. `check` may refuse a valid problem.
// Errors: kInvalidArgument naming the line and the error in it, also if it is
// the line of problem kMaxProblems + 1; those of `check`, naming the line.
absl::StatusOr<std::vector<ConvProblem>> ParseProblems(
    absl::string_view text,
    absl::FunctionRef<absl::Status(const ConvProblem&)> check);

// Every problem in each dtype and layout of activations. Value type.
struct ProblemList {
  std::vector<ConvProblem> problems;
  std::vector<DataType> dtypes = {DataType::kF32, DataType::kBF16,
                                  DataType::kF16};
  std::vector<Layout> layouts = {Layout::kNCX, Layout::kNXC};

  // Returns the forward and the whole backward operation of each combination.
  std::vector<std::shared_ptr<const Operation>> Operations() const;
};

}  // namespace convgrad
