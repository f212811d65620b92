#include "tests/conformance/comparison.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "backends/core/convolution/error_bound.h"
#include "backends/core/logical_tensor.h"

namespace convgrad::testing_support {
namespace {

testing::AssertionResult Failure(const StoredResult& got) {
  return testing::AssertionFailure()
         << ToString(*got.operation) << "\n  " << NameOf(got.request->which)
         << " " << ToString(got.request->descriptor) << ": ";
}

// Returns logical position `i` as text, e.g. "[0,3,1,2]".
std::string IndexText(const Dims& dims, int64_t i) {
  Dims index(dims.size(), 0);
  for (size_t axis = dims.size(); axis-- > 0;) {
    index[axis] = i % dims[axis];
    i /= dims[axis];
  }
  return ToString(absl::MakeConstSpan(index));
}

std::string At(const StoredResult& got, int64_t i) {
  return "at " + IndexText(got.request->descriptor.dims, i);
}

double Scaled(double value, float scale) {
  return scale == 1 ? value : static_cast<float>(value) * scale;
}

double NormLimit(DataType dtype, double products) {
  switch (dtype) {
    case DataType::kF32:
      return 5e-6 * std::max(1.0, std::sqrt(products / 8192));
    case DataType::kBF16:
      return 3e-3;
    case DataType::kF16:
      return 4e-4;
    case DataType::kU8:
    case DataType::kI64:
    case DataType::kU16:
      break;
  }
  return 0;
}

// Returns the first element of `got` that is a pad lane and isn't +0; -1 if
// there is none.
int64_t FirstDirtyPadLane(const StoredResult& got) {
  const TensorDescriptor& tensor = got.request->descriptor;
  if (IsRowMajor(tensor.layout) || ElementCount(tensor) == 0) return -1;
  const int64_t width = ByteSizeOf(tensor.dtype);
  std::vector<bool> logical(*ByteSize(tensor) / width);
  for (int64_t offset : LogicalOffsets(tensor)) logical[offset] = true;
  const auto* bytes = static_cast<const char*>(got.data);
  for (size_t i = 0; i < logical.size(); ++i) {
    const char* lane = bytes + i * width;
    if (!logical[i] &&
        std::any_of(lane, lane + width, [](char byte) { return byte != 0; })) {
      return static_cast<int64_t>(i);
    }
  }
  return -1;
}

// Returns the operation whose sums bound the errors: without ReLU on its
// result, but with the mask of a backward operation.
ConvOperation WithoutForwardRelu(ConvOperation operation) {
  if (operation.direction == Direction::kForward) {
    operation.problem.relu = false;
  }
  return operation;
}

template <typename Function>
ExactOperands MapAll(ExactOperands operands, const Function& function) {
  for (Operand which : kAllOperands) {
    if (which == Operand::kOutput) continue;  // Only its sign counts.
    for (double& value : operands[static_cast<size_t>(which)]) {
      value = function(value);
    }
  }
  return operands;
}

}  // namespace

double RoundedTo(DataType dtype, double value) {
  float bits = 0;
  StoreRounded(dtype, value, &bits);
  return LoadAsDouble(dtype, &bits);
}

ExpectedResult ExpectExact(const ConvOperation& operation, Result which,
                           const ExactOperands& operands) {
  return {.value = ExactResult(operation, which, operands),
          .root_sum_squares = {},
          .absolute = {},
          .products = ProductsPerElement(operation.problem, which)};
}

ExpectedResult ExpectZeroMean(const ConvOperation& operation, Result which,
                              const ExactOperands& operands) {
  ExpectedResult expected = ExpectExact(operation, which, operands);
  expected.root_sum_squares =
      ExactResult(WithoutForwardRelu(operation), which,
                  MapAll(operands, [](double v) { return v * v; }));
  for (double& sum : expected.root_sum_squares) sum = std::sqrt(sum);
  return expected;
}

ExpectedResult ExpectReal(const ConvOperation& operation, Result which,
                          const ExactOperands& operands) {
  ExpectedResult expected = ExpectZeroMean(operation, which, operands);
  expected.absolute =
      ExactResult(WithoutForwardRelu(operation), which,
                  MapAll(operands, [](double v) { return std::fabs(v); }));
  return expected;
}

testing::AssertionResult IsExactly(const StoredResult& got,
                                   const ExpectedResult& expected) {
  const TensorDescriptor& tensor = got.request->descriptor;
  const std::vector<double> values = LoadLogical(tensor, got.data);
  if (values.size() != expected.value.size()) {
    return Failure(got) << values.size() << " elements, expected "
                        << expected.value.size();
  }
  int64_t wrong = 0, first = -1;
  for (size_t i = 0; i < values.size(); ++i) {
    const double want =
        RoundedTo(tensor.dtype, Scaled(expected.value[i], got.request->scale));
    if (values[i] == want || (std::isnan(values[i]) && std::isnan(want))) {
      continue;
    }
    if (wrong++ == 0) first = static_cast<int64_t>(i);
  }
  if (wrong > 0) {
    return Failure(got) << At(got, first) << " got " << values[first]
                        << ", expected "
                        << RoundedTo(tensor.dtype, Scaled(expected.value[first],
                                                          got.request->scale))
                        << " (" << wrong << " of " << values.size()
                        << " elements differ)";
  }
  if (const int64_t lane = FirstDirtyPadLane(got); lane >= 0) {
    return Failure(got) << "pad lane at offset " << lane
                        << " is not +0, expected +0";
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult IsWithinBound(const StoredResult& got,
                                       const ExpectedResult& expected,
                                       DataKind kind) {
  const std::vector<double> values =
      LoadLogical(got.request->descriptor, got.data);
  const ErrorBound allowed(*got.operation, *got.request);
  for (size_t i = 0; i < values.size(); ++i) {
    const double ref = expected.value[i];
    const double spread =
        kind == DataKind::kZeroMean
            ? std::max(std::fabs(ref), expected.root_sum_squares[i])
            : expected.absolute[i];
    const double bound = allowed.Allowed(ref, spread);
    const double error = std::fabs(values[i] - ref * got.request->scale);
    if (error <= bound) continue;  // False for NaN.
    return Failure(got) << At(got, i) << " got " << values[i] << ", expected "
                        << ref * got.request->scale << " within " << bound
                        << ", off by " << error;
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult IsWithinNorm(const StoredResult& got,
                                      const ExpectedResult& expected) {
  const std::vector<double> values =
      LoadLogical(got.request->descriptor, got.data);
  if (values.size() < 64) return testing::AssertionSuccess();
  double errors = 0, total = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double want = expected.value[i] * got.request->scale;
    errors += (values[i] - want) * (values[i] - want);
    total += want * want;
  }
  const double limit =
      NormLimit(got.request->descriptor.dtype, expected.products);
  if (std::sqrt(errors) <= limit * std::sqrt(total)) {
    return testing::AssertionSuccess();
  }
  return Failure(got) << "relative error of the norm "
                      << std::sqrt(errors / total) << ", expected at most "
                      << limit;
}

}  // namespace convgrad::testing_support
