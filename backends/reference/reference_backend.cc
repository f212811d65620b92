#include "backends/reference/reference_backend.h"

#include "backends/core/program/conv_backend.h"
#include "backends/reference/reference_conv_plan.h"
#include "backends/reference/reference_program_plan.h"

namespace convgrad {
namespace {

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
    return std::make_unique<ReferenceConvPlan>(operation);
  }

  absl::Status CheckProgram(const ProgramOperation&) const override {
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<Plan>> PlanProgram(
      const ProgramOperation& operation, const PlanOptions&) const override {
    return std::make_unique<ReferenceProgramPlan>(operation);
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeReferenceBackend() {
  return std::make_unique<ReferenceBackend>();
}

}  // namespace convgrad
