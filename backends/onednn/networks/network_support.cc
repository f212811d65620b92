#include "backends/onednn/networks/network_support.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "backends/onednn/networks/network_groups.h"

namespace convgrad::onednn {
namespace {

absl::Status Unsupported(absl::string_view field, absl::string_view found,
                         absl::string_view expected) {
  return MakeError(absl::StatusCode::kUnimplemented,
                   {Reason::kUnsupported, std::string(field),
                    std::string(found), std::string(expected)});
}

bool HasOperator(const ProgramStep& step, const ProgramShapes& shapes) {
  const auto dims = [&](size_t i) { return shapes.dims.at(step.operands[i]); };
  switch (step.op) {
    case Operator::kAdd:
      return dims(0) == dims(1);
    case Operator::kConv:
    case Operator::kLinear:
    case Operator::kBatchNorm:
    case Operator::kMaxPool:
    case Operator::kAvgPool:
    case Operator::kAdaptiveAvgPool:
    case Operator::kRelu:
    case Operator::kRelu6:
    case Operator::kLeakyRelu:
    case Operator::kSigmoid:
    case Operator::kSilu:
    case Operator::kFlatten:
    case Operator::kCrossEntropy:
      return true;
    default:
      return false;
  }
}

}  // namespace

absl::Status CheckNetwork(const ProgramOperation& operation) {
  const ProgramRequest& request = operation.request();
  const convgrad::Program& program = operation.program();
  if (request.compute_dtype != DataType::kF32) {
    return Unsupported("compute_dtype", NameOf(request.compute_dtype), "f32");
  }
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    if (request.inputs[i].dtype != DataType::kU8) continue;
    return Unsupported(absl::StrCat("inputs.", program.inputs[i].name), "u8",
                       "f32, bf16 or f16");
  }
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const ProgramStep& step = program.steps[i];
    if (HasOperator(step, operation.shapes())) continue;
    return Unsupported(StepPath(program, i), NameOf(step.op),
                       "an operator that the CPU backend has");
  }
  const std::vector<std::string> hidden =
      HiddenValues(program, operation.shapes());
  for (const std::string& name : request.fetched) {
    if (std::find(hidden.begin(), hidden.end(), name) == hidden.end()) continue;
    return Unsupported("fetched", name,
                       "a value that isn't fused with what follows it");
  }
  return absl::OkStatus();
}

}  // namespace convgrad::onednn
