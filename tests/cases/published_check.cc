#include "tests/cases/published_check.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "backends/core/logical_tensor.h"
#include "backends/core/status.h"
#include "tests/conformance/comparison.h"

namespace convgrad::testing_support {
namespace {

bool IsExactIn(const CaseRecord& record, DataType dtype) {
  return std::find(record.bit_exact.begin(), record.bit_exact.end(), dtype) !=
         record.bit_exact.end();
}

// Packs the values, each rounded once; pad lanes are NaN.
absl::StatusOr<AlignedBuffer> PackValues(const TensorDescriptor& descriptor,
                                         const std::vector<double>& values) {
  const std::vector<int64_t> offsets = LogicalOffsets(descriptor);
  if (offsets.size() != values.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(values.size(), " published values for ",
                     ToString(descriptor), " with ", offsets.size()));
  }
  ASSIGN_OR_RETURN(AlignedBuffer buffer,
                   AlignedBuffer::Allocate(*ByteSize(descriptor)));
  if (buffer.size() == 0) return buffer;
  std::memset(buffer.data(), 0xff, buffer.size());
  const int64_t width = ByteSizeOf(descriptor.dtype);
  for (size_t i = 0; i < offsets.size(); ++i) {
    StoreRounded(descriptor.dtype, values[i],
                 buffer.data() + offsets[i] * width);
  }
  return buffer;
}

testing::AssertionResult IsWithinPublishedBound(
    const StoredResult& got, const std::vector<double>& expected) {
  double largest = 0;
  for (double value : expected) largest = std::max(largest, std::fabs(value));
  const std::vector<double> values =
      LoadLogical(got.request->descriptor, got.data);
  if (values.size() != expected.size()) {
    return testing::AssertionFailure()
           << values.size() << " elements, expected " << expected.size();
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::fabs(values[i] - expected[i]) <= 1e-5 * largest + 1e-6) continue;
    return testing::AssertionFailure()
           << ToString(*got.operation) << "\n  " << NameOf(got.request->which)
           << " element " << i << ": got " << values[i] << ", published "
           << expected[i];
  }
  return testing::AssertionSuccess();
}

// Returns the operation that computes the expected results.
OperationSpec SpecOf(const CaseRecord& record, DataType dtype,
                     const LayoutSet& layouts) {
  OperationSpec spec;
  spec.problem = record.problem;
  spec.results = record.expected_results;
  spec.dtype = spec.result_dtype = spec.side_dtype = dtype;
  spec.layouts = layouts;
  return spec;
}

void UseC0(int64_t c0, ConvOperation* operation) {
  const auto set = [&](TensorDescriptor& tensor) {
    if (!IsRowMajor(tensor.layout)) tensor.c0 = c0;
  };
  for (auto& operand : operation->operands) {
    if (operand) set(*operand);
  }
  for (ResultRequest& request : operation->results) set(request.descriptor);
}

}  // namespace

bool IsPublishedIn(const CaseRecord& record, DataType dtype) {
  return !record.expected_results.empty() &&
         (dtype == DataType::kF32 || IsExactIn(record, dtype));
}

Outcome CheckPublished(const CaseTarget& target, const CaseRecord& record,
                       DataType dtype, const LayoutSet& layouts, int64_t c0) {
  ConvOperation operation = MakeOperation(SpecOf(record, dtype, layouts));
  if (c0 != 0) UseC0(c0, &operation);
  const auto results =
      target.Run(operation, [&](Operand which, const TensorDescriptor& tensor) {
        return PackValues(tensor, record.inputs[static_cast<size_t>(which)]);
      });
  if (!results.ok()) return OutcomeOf(operation, results.status());
  Outcome outcome;
  for (size_t i = 0; i < operation.results.size(); ++i) {
    const ResultRequest& request = operation.results[i];
    const StoredResult got{&operation, &request, (*results)[i].data()};
    const auto& published = record.expected[static_cast<size_t>(request.which)];
    ExpectedResult expected;
    expected.value = published;
    const testing::AssertionResult result =
        IsExactIn(record, dtype) ? IsExactly(got, expected)
                                 : IsWithinPublishedBound(got, published);
    if (!result) outcome.Add(Failed(result.message()));
    outcome.elements += static_cast<int64_t>(published.size());
  }
  return outcome;
}

}  // namespace convgrad::testing_support
