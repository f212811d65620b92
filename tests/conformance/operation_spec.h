// `MakeOperation` makes a valid ConvOperation from an OperationSpec: problem,
// direction, dtypes and layouts.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "backends/core/convolution/conv_operation.h"

namespace convgrad::testing_support {

// Layouts of all tensors of one request.
struct LayoutSet {
  absl::string_view name = "";
  Layout input = Layout::kNCX;
  Layout weight = Layout::kOIX;
  Layout output = Layout::kNCX;  // residual, grad_output and output
  Layout grad_input = Layout::kNCX;
  Layout grad_weight = Layout::kOIX;
  Layout result = Layout::kNCX;  // output, grad_residual
};

// Returns NCX/OIX, NXC/OXI, NXC/XIO, and a set with a different layout for each
// tensor.
absl::Span<const LayoutSet> RowMajorLayouts();
// Returns NDC1HWC0 and FRACTAL_Z_3D for all tensors, and mixed with row-major
// results.
absl::Span<const LayoutSet> BlockedLayouts();

struct OperationSpec {
  ConvProblem problem;
  std::vector<Result> results = {Result::kOutput};
  DataType dtype = DataType::kF32;         // of input, weight, grad_output
  DataType result_dtype = DataType::kF32;  // of every result
  DataType side_dtype = DataType::kF32;    // of bias, residual, output
  LayoutSet layouts = {};
  float scale = 1;
};

// The gradient sets that every backend must compute: all three gradients, and
// each alone.
const std::vector<std::vector<Result>>& GradientSets();

// Returns the operation with exactly the operands that it needs. A backward
// operation drops the residual, and asks for grad_bias in the problem's bias
// shape, or per channel if it has none. Requires: the problem is valid.
ConvOperation MakeOperation(const OperationSpec& spec);

// Returns the problems of a shape list: one problem string a line; '#' starts a
// comment; blank lines are skipped. `file` is relative to the conformance
// folder. Aborts if it can't be read or is empty.
std::vector<std::string> ReadShapeList(const std::string& file);

}  // namespace convgrad::testing_support
