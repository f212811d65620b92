#include "backends/reference/reference_backend.h"

#include <functional>
#include <utility>
#include <vector>

#include "backends/core/logical_tensor.h"
#include "backends/core/program/conv_backend.h"
#include "backends/core/status.h"
#include "backends/core/steady_now.h"
#include "backends/reference/exact_convolution.h"
#include "backends/reference/reference_program_run.h"

namespace convgrad {
namespace {

// Computes an operation by `run`, which allocates its own memory.
class ReferencePlan final : public Plan {
 public:
  using RunFunction = std::function<absl::Status(const RunBuffers&)>;

  ReferencePlan(RunFunction run, int64_t tape_bytes, size_t operation_bytes)
      : run_(std::move(run)),
        tape_bytes_(tape_bytes),
        operation_bytes_(static_cast<int64_t>(operation_bytes)) {}

  absl::StatusOr<RunTimes> Run(const RunBuffers& buffers) const override {
    const absl::Time start = SteadyNow();
    RETURN_IF_ERROR(run_(buffers));
    RunTimes times;
    times.compute = SteadyNow() - start;
    return times;
  }
  int64_t scratch_bytes() const override { return 0; }
  int64_t tape_bytes() const override { return tape_bytes_; }
  int64_t resident_bytes() const override {
    return sizeof(*this) + operation_bytes_;
  }
  absl::string_view implementation() const override { return "loops:double"; }

 private:
  const RunFunction run_;
  const int64_t tape_bytes_, operation_bytes_;
};

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

absl::Status RunConvolution(const ConvOperation& operation,
                            const RunBuffers& buffers) {
  const ExactOperands operands = LoadOperands(operation, buffers);
  for (size_t i = 0; i < operation.results.size(); ++i) {
    const ResultRequest& request = operation.results[i];
    std::vector<double> values =
        ExactResult(operation, request.which, operands);
    Scale(request.scale, &values);
    StoreLogical(request.descriptor, values, buffers.results[i]);
  }
  return absl::OkStatus();
}

class ReferenceBackend : public ConvBackend {
 public:
  absl::string_view name() const override { return "reference"; }

  BackendCapabilities capabilities() const override {
    BackendCapabilities capabilities = EveryConvolution();
    capabilities.description = "plain loops, double sums, one thread";
    capabilities.native_dtypes = capabilities.dtypes;
    return capabilities;
  }

  double nominal_macs_per_second(int /*threads*/) const override { return 1e9; }

  absl::StatusOr<std::unique_ptr<Plan>> PlanConvolution(
      const ConvOperation& operation, const PlanOptions&) const override {
    return std::make_unique<ReferencePlan>(
        std::bind_front(&RunConvolution, operation), 0, sizeof(operation));
  }

  absl::Status CheckProgram(const ProgramOperation&) const override {
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<Plan>> PlanProgram(
      const ProgramOperation& operation, const PlanOptions&) const override {
    return std::make_unique<ReferencePlan>(
        std::bind_front(&RunReferenceProgram, operation),
        ReferenceTapeBytes(operation),
        sizeof(operation) + operation.text().size());
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeReferenceBackend() {
  return std::make_unique<ReferenceBackend>();
}

}  // namespace convgrad
