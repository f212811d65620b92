// These functions decide whether a result is correct (proto/correctness.md,
// "Single results"), on logical values. Each returns a failure that names
// result, index, found and expected value.
#pragma once

#include <vector>

#include "backends/core/convolution/conv_operation.h"
#include "backends/reference/exact_convolution.h"
#include "gtest/gtest.h"

namespace convgrad::testing_support {

// The bytes of one result, as a backend stored them.
struct StoredResult {
  const ConvOperation* operation;
  const ResultRequest* request;
  const void* data;
};

// The expected result: doubles in logical order, before scale and rounding.
struct ExpectedResult {
  std::vector<double> value;  // the float64 result
  // Square root of the same operation on squared values, before any ReLU.
  std::vector<double> root_sum_squares;
  // The same operation on absolute values, before any ReLU.
  std::vector<double> absolute;
  double products = 0;  // K, summed per element
};

// Returns only `value`, which suffices for the exact criterion.
ExpectedResult ExpectExact(const ConvOperation& operation, Result which,
                           const ExactOperands& operands);
// Returns all fields except `absolute`, which suffices for zero-mean operands.
ExpectedResult ExpectZeroMean(const ConvOperation& operation, Result which,
                              const ExactOperands& operands);
// Returns all fields.
ExpectedResult ExpectReal(const ConvOperation& operation, Result which,
                          const ExactOperands& operands);

// The first criterion: every element equals the expected value, scaled in f32
// and rounded once to the result's dtype, bit for bit (-0 equals +0, NaN equals
// NaN). Pad lanes are +0.
testing::AssertionResult IsExactly(const StoredResult& got,
                                   const ExpectedResult& expected);

enum class DataKind {
  kZeroMean,  // Independent zero-mean operands: the smaller bound.
  kAny,
};

// The element-wise criterion on real numbers.
testing::AssertionResult IsWithinBound(const StoredResult& got,
                                       const ExpectedResult& expected,
                                       DataKind kind);

// Returns `value` rounded once to `dtype`.
double RoundedTo(DataType dtype, double value);

// The norm criterion; true for results of fewer than 64 elements.
testing::AssertionResult IsWithinNorm(const StoredResult& got,
                                      const ExpectedResult& expected);

}  // namespace convgrad::testing_support
