#include "backends/onednn/networks/schedule/network_dtypes.h"

#include <string>

namespace convgrad::onednn {

DataType DtypeOf(const GroupSteps& steps, const NetworkBuilder& builder) {
  const Program& program = builder.operation().program();
  const DataType compute = builder.operation().request().compute_dtype;
  const ProgramStep& first = program.steps[steps.first];
  if (first.op == Operator::kRead) return DataType::kF32;
  if (SpecOf(first.op).is_product || steps.convolution != GroupSteps::kNone) {
    return compute;
  }
  for (size_t i = 0; i < first.operands.size(); ++i) {
    const std::string& name = first.operands[i];
    const bool is_value =
        !name.empty() && FindParameter(program, name) == nullptr;
    if (!is_value || OperandSpecAt(SpecOf(first.op), i).keeps_dtype) continue;
    if (builder.DtypeOf(name) == DataType::kF32) return DataType::kF32;
  }
  return compute;
}

}  // namespace convgrad::onednn
