#include "tests/conformance/operation_spec.h"

#include <cstdlib>
#include <fstream>
#include <iostream>

namespace convgrad::testing_support {
namespace {

constexpr LayoutSet kRowMajor[] = {
    {.name = "NCX/OIX"},
    {.name = "NXC/OXI",
     .input = Layout::kNXC,
     .weight = Layout::kOXI,
     .output = Layout::kNXC,
     .grad_input = Layout::kNXC,
     .grad_weight = Layout::kOXI,
     .result = Layout::kNXC},
    {.name = "NXC/XIO",
     .input = Layout::kNXC,
     .weight = Layout::kXIO,
     .output = Layout::kNXC,
     .grad_input = Layout::kNXC,
     .grad_weight = Layout::kXIO,
     .result = Layout::kNXC},
    {.name = "mixed",
     .input = Layout::kNXC,
     .weight = Layout::kXIO,
     .output = Layout::kNCX,
     .grad_input = Layout::kNCX,
     .grad_weight = Layout::kOXI,
     .result = Layout::kNXC},
};

constexpr LayoutSet kBlocked[] = {
    {.name = "NDC1HWC0/FRACTAL_Z_3D",
     .input = Layout::kNDC1HWC0,
     .weight = Layout::kFractalZ3D,
     .output = Layout::kNDC1HWC0,
     .grad_input = Layout::kNDC1HWC0,
     .grad_weight = Layout::kFractalZ3D,
     .result = Layout::kNDC1HWC0},
    {.name = "blocked operands",
     .input = Layout::kNDC1HWC0,
     .weight = Layout::kFractalZ3D,
     .output = Layout::kNDC1HWC0},
    {.name = "blocked results",
     .grad_input = Layout::kNDC1HWC0,
     .grad_weight = Layout::kFractalZ3D,
     .result = Layout::kNDC1HWC0},
};

Layout LayoutOf(const LayoutSet& layouts, Operand which) {
  switch (which) {
    case Operand::kInput:
      return layouts.input;
    case Operand::kWeight:
      return layouts.weight;
    case Operand::kBias:
      return Layout::kNCX;
    case Operand::kResidual:
    case Operand::kGradOutput:
    case Operand::kOutput:
      return layouts.output;
  }
  return Layout::kNCX;
}

Layout LayoutOf(const LayoutSet& layouts, Result which) {
  switch (which) {
    case Result::kGradInput:
      return layouts.grad_input;
    case Result::kGradWeight:
      return layouts.grad_weight;
    case Result::kGradBias:
      return Layout::kNCX;
    case Result::kOutput:
    case Result::kGradResidual:
      return layouts.result;
  }
  return Layout::kNCX;
}

bool IsPrimary(Operand which) {
  return which == Operand::kInput || which == Operand::kWeight ||
         which == Operand::kGradOutput;
}

template <typename Role>
TensorDescriptor Describe(const OperationSpec& spec, const ConvProblem& problem,
                          Role role, DataType dtype) {
  TensorDescriptor tensor;
  tensor.dtype = dtype;
  tensor.layout = LayoutOf(spec.layouts, role);
  tensor.dims = DimsOf(problem, role);
  tensor.groups = problem.groups;
  if (!IsRowMajor(tensor.layout)) tensor.c0 = DefaultC0(spec.dtype);
  return tensor;
}

}  // namespace

absl::Span<const LayoutSet> RowMajorLayouts() { return kRowMajor; }
absl::Span<const LayoutSet> BlockedLayouts() { return kBlocked; }

const std::vector<std::vector<Result>>& GradientSets() {
  static const auto& sets = *new std::vector<std::vector<Result>>{
      {Result::kGradInput, Result::kGradWeight, Result::kGradBias},
      {Result::kGradInput},
      {Result::kGradWeight},
      {Result::kGradBias}};
  return sets;
}

ConvOperation MakeOperation(const OperationSpec& spec) {
  ConvOperation operation;
  operation.problem = spec.problem;
  ConvProblem& problem = operation.problem;
  if (spec.results[0] != Result::kOutput) {
    operation.direction = Direction::kBackward;
    problem.residual = false;
    if (!problem.bias) problem.bias = PerChannelBiasDims(problem);
  }
  for (Result which : spec.results) {
    operation.results.push_back(
        {which, Describe(spec, problem, which, spec.result_dtype), spec.scale});
  }
  if (spec.results[0] != Result::kOutput &&
      !operation.result(Result::kGradBias)) {
    problem.bias.reset();
  }
  for (Operand which : kAllOperands) {
    if (!IsNeeded(operation, which)) continue;
    operation.operand(which) = Describe(
        spec, problem, which, IsPrimary(which) ? spec.dtype : spec.side_dtype);
  }
  return operation;
}

std::vector<std::string> ReadShapeList(const std::string& file) {
  // The variable names the lists of a binary that was copied elsewhere.
  const char* carried = std::getenv("CONVGRAD_SHAPE_LISTS");
  const std::string folder = carried ? carried : CONVGRAD_SHAPE_LISTS;
  std::ifstream list(folder + "/" + file);
  std::vector<std::string> problems;
  for (std::string line; std::getline(list, line);) {
    line = line.substr(0, line.find_first_of(" #"));
    if (!line.empty()) problems.push_back(line);
  }
  if (problems.empty()) {
    std::cerr << "no problems in shape list " << file << std::endl;
    std::abort();
  }
  return problems;
}

}  // namespace convgrad::testing_support
