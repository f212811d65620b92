#include "backends/onednn/networks/schedule/network_dtypes.h"

#include <algorithm>
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
  const bool reads_f32 = std::any_of(
      first.operands.begin(), first.operands.end(),
      [&](const std::string& name) {
        return !name.empty() && FindParameter(program, name) == nullptr &&
               builder.DtypeOf(name) == DataType::kF32;
      });
  return reads_f32 ? DataType::kF32 : compute;
}

}  // namespace convgrad::onednn
