#include "backends/reference/reference_conv_plan.h"

#include <utility>
#include <vector>

#include "backends/core/logical_tensor.h"
#include "backends/core/steady_now.h"
#include "backends/reference/exact_convolution.h"

namespace convgrad {
namespace {

ExactOperands LoadOperands(const ConvOperation& operation,
                           const RunBuffers& buffers) {
  ExactOperands operands;
  for (Operand which : kAllOperands) {
    if (!IsNeeded(operation, which)) continue;
    operands[PositionOf(which)] = LoadLogical(
        *operation.operand(which), buffers.operands[PositionOf(which)]);
  }
  return operands;
}

// Scales in f32, after the ReLU and before the single rounding, as the contract
// says. A scale of 1 must not change the double; otherwise it would be rounded
// twice.
void Scale(float scale, std::vector<double>* values) {
  if (scale == 1) return;
  for (double& value : *values) value = static_cast<float>(value) * scale;
}

}  // namespace

ReferenceConvPlan::ReferenceConvPlan(ConvOperation operation)
    : operation_(std::move(operation)) {}

absl::StatusOr<RunTimes> ReferenceConvPlan::Run(
    const RunBuffers& buffers) const {
  const absl::Time start = SteadyNow();
  const ExactOperands operands = LoadOperands(operation_, buffers);
  for (size_t i = 0; i < operation_.results.size(); ++i) {
    const ResultRequest& request = operation_.results[i];
    std::vector<double> values =
        ExactResult(operation_, request.which, operands);
    Scale(request.scale, &values);
    StoreLogical(request.descriptor, values, buffers.results[i]);
  }
  RunTimes times;
  times.compute = SteadyNow() - start;
  return times;
}

int64_t ReferenceConvPlan::resident_bytes() const { return sizeof(*this); }

}  // namespace convgrad
