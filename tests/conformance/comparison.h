// What "correct" means (proto/correctness.md, "Single results"), as functions
// on logical values. Each returns a failure that names result, index, got and
// expected.
#pragma once

#include <vector>

#include "backends/core/convolution/conv_operation.h"
#include "backends/reference/exact_convolution.h"
#include "gtest/gtest.h"

namespace convgrad::testing_support {

// Bytes of one result, as a backend stored them.
struct StoredResult {
  const ConvOperation* operation;
  const ResultRequest* request;
  const void* data;
};

// What a result is measured against: doubles in logical order, before scale
// and rounding.
struct ExpectedResult {
  std::vector<double> value;  // the float64 result
  // Square root of the same operation on squared values, before any ReLU.
  std::vector<double> root_sum_squares;
  // The same operation on absolute values, before any ReLU.
  std::vector<double> absolute;
  double products = 0;  // K, summed per element
};

// Returns only `value`: all that the exact criterion needs.
ExpectedResult ExpectExact(const ConvOperation& operation, Result which,
                           const ExactOperands& operands);
// Returns all fields but `absolute`: what zero-mean operands need.
ExpectedResult ExpectZeroMean(const ConvOperation& operation, Result which,
                              const ExactOperands& operands);
// Returns all fields.
ExpectedResult ExpectReal(const ConvOperation& operation, Result which,
                          const ExactOperands& operands);

// First criterion: every element equals the expected value, scaled in f32 and
// rounded once to the result's dtype, bit for bit (-0 equals +0, NaN equals
// NaN); pad lanes are +0.
testing::AssertionResult IsExactly(const StoredResult& got,
                                   const ExpectedResult& expected);

enum class DataKind {
  kZeroMean,  // independent zero-mean operands: the sharper bound
  kAny,
};

// Element-wise criterion on real numbers.
testing::AssertionResult IsWithinBound(const StoredResult& got,
                                       const ExpectedResult& expected,
                                       DataKind kind);

// Returns `value` rounded once to `dtype`.
double RoundedTo(DataType dtype, double value);

// Norm criterion; true for results of fewer than 64 elements.
testing::AssertionResult IsWithinNorm(const StoredResult& got,
                                      const ExpectedResult& expected);

}  // namespace convgrad::testing_support
