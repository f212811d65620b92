// `ProblemList` lists convolutions that an operator expects, so that the server
// can plan them in advance.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "backends/core/convolution/conv_operation.h"

namespace convgrad {

// Parses a text with one problem string per line. Skips empty lines and lines
// that begin with #.
// Errors: kInvalidArgument naming the line and the error in it.
absl::StatusOr<std::vector<ConvProblem>> ParseProblems(absl::string_view text);

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
