// The published cases: one JSON object a line, as problems of ours. The
// folder's own README has the format.
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
  // What Validate says of the problem: some records have extents of 0.
  absl::Status validity;

  // Published values, in logical order; empty where the record has none.
  ExactOperands inputs;
  std::vector<Result> expected_results;
  std::array<std::vector<double>, kResultCount> expected;  // by Result
  // The dtypes in which the expected values must come out bit for bit.
  std::vector<DataType> bit_exact;
};

// Returns the records of a file, in its order.
// Errors: kNotFound; kInvalidArgument naming the line that isn't a record.
absl::StatusOr<std::vector<CaseRecord>> ReadCases(const std::string& path);

// The same of one line.
absl::StatusOr<CaseRecord> ParseCase(const std::string& line);

}  // namespace convgrad::testing_support
