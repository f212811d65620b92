// `CaseRecord` is one published case, converted to a problem. A file has one
// JSON object a line; the folder's own README describes the format.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/core/convolution/conv_operation.h"
#include "backends/reference/exact_convolution.h"

namespace convgrad::testing_support {

struct CaseRecord {
  std::string id;
  char tier = 'S';  // S, M or L
  // With the record's bias (per channel), residual and ReLU.
  ConvProblem problem;
  // The result of Validate for the problem. Some records have extents of 0.
  absl::Status validity;

  // Published values in logical order; empty if the record has none.
  ExactOperands inputs;
  std::vector<Result> expected_results;
  std::array<std::vector<double>, kResultCount> expected;  // by Result
  // The dtypes in which results must have the expected values bit for bit.
  std::vector<DataType> bit_exact;
};

// Returns the records of a file, in its order.
// Errors: kNotFound; kInvalidArgument naming the line that isn't a record.
absl::StatusOr<std::vector<CaseRecord>> ReadCases(const std::string& path);

// Parses one line of such a file.
absl::StatusOr<CaseRecord> ParseCase(const std::string& line);

}  // namespace convgrad::testing_support
