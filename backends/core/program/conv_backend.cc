#include "backends/core/program/conv_backend.h"

#include <cstring>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/core/optimizer/update_plan.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

absl::Status Refusal(const Backend& backend, const Operation& operation) {
  return Unsupported("operation", operation.name(),
                     absl::StrCat("a convolution or its gradients, all that ",
                                  backend.name(), " computes"));
}

// Computes a convolution of an empty batch: the output and grad_input are
// empty, the sums are 0.
class ZeroPlan final : public Plan {
 public:
  explicit ZeroPlan(const ConvOperation& operation) {
    for (const ResultRequest& request : operation.results) {
      bytes_.push_back(*ByteSize(request.descriptor));
    }
  }

  absl::StatusOr<RunTimes> Run(const RunBuffers& buffers) const override {
    for (size_t i = 0; i < bytes_.size(); ++i) {
      if (bytes_[i] > 0) std::memset(buffers.results[i], 0, bytes_[i]);
    }
    return RunTimes();
  }
  int64_t scratch_bytes() const override { return 0; }
  int64_t resident_bytes() const override { return sizeof(*this); }
  absl::string_view implementation() const override { return "zero"; }

 private:
  std::vector<int64_t> bytes_;
};

}  // namespace

BackendCapabilities ConvBackend::EveryConvolution() {
  BackendCapabilities capabilities;
  capabilities.results.assign(kAllResults.begin(), kAllResults.end());
  capabilities.dtypes = {DataType::kF32, DataType::kBF16, DataType::kF16};
  capabilities.layouts = {Layout::kNCX,       Layout::kNXC, Layout::kOIX,
                          Layout::kOXI,       Layout::kXIO, Layout::kNDC1HWC0,
                          Layout::kFractalZ3D};
  return capabilities;
}

absl::Status ConvBackend::CheckSupport(const Operation& operation) const {
  if (const ConvOperation* convolution = AsConvolution(operation)) {
    return CheckConvolution(*convolution);
  }
  // Plain loops over memory, which every backend on the cores can do.
  if (AsUpdate(operation) != nullptr && device_count() == 0) {
    return absl::OkStatus();
  }
  const ProgramOperation* program = AsProgram(operation);
  return program == nullptr ? Refusal(*this, operation)
                            : CheckProgram(*program);
}

absl::StatusOr<std::unique_ptr<Plan>> ConvBackend::MakePlan(
    const Operation& operation, const PlanOptions& options) const {
  if (const ConvOperation* convolution = AsConvolution(operation)) {
    if (convolution->batch() == 0) {
      return std::make_unique<ZeroPlan>(*convolution);
    }
    return PlanConvolution(*convolution, options);
  }
  const UpdateOperation* update = AsUpdate(operation);
  if (update != nullptr && device_count() == 0) {
    return MakeUpdatePlan(*update, *this, options.threads);
  }
  const ProgramOperation* program = AsProgram(operation);
  if (program == nullptr) return Refusal(*this, operation);
  return PlanProgram(*program, options);
}

absl::Status ConvBackend::CheckProgram(
    const ProgramOperation& operation) const {
  return Refusal(*this, operation);
}

absl::StatusOr<std::unique_ptr<Plan>> ConvBackend::PlanProgram(
    const ProgramOperation& operation, const PlanOptions& /*options*/) const {
  return Refusal(*this, operation);
}

}  // namespace convgrad
