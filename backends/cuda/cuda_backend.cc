#include "backends/cuda/cuda_backend.h"

#include <string>
#include <utility>

#include "backends/core/status.h"
#include "backends/cuda/cuda_conv_plan.h"
#include "backends/cuda/cuda_device.h"

namespace convgrad {
namespace {

constexpr int64_t kMaxWorkspaceBytes = int64_t{1} << 30;

class CudaBackend final : public Backend {
 public:
  CudaBackend(std::string description, cuda::GraphTarget target)
      : description_(std::move(description)),
        version_(target.version()),
        device_(cuda::MakeDeviceCalls(0)),
        target_(std::move(target)) {}

  absl::Status Start() {
    ASSIGN_OR_RETURN(lane_, cuda::Lane::Make(&device_));
    worker_.device = &device_;
    worker_.lane = lane_.get();
    MutexLock lock(&worker_.mutex);
    worker_.target = &target_;
    return absl::OkStatus();
  }

  absl::string_view name() const override { return "cuda"; }

  BackendCapabilities capabilities() const override {
    BackendCapabilities capabilities;
    capabilities.version = version_;
    capabilities.description = description_;
    capabilities.results.assign(kAllResults.begin(), kAllResults.end());
    capabilities.dtypes = {DataType::kF32, DataType::kBF16, DataType::kF16};
    capabilities.native_dtypes = capabilities.dtypes;
    capabilities.layouts = {Layout::kNCX,       Layout::kNXC, Layout::kOIX,
                            Layout::kOXI,       Layout::kXIO, Layout::kNDC1HWC0,
                            Layout::kFractalZ3D};
    return capabilities;
  }

  // Of the smallest device that it is built for, in f32.
  double nominal_macs_per_second(int /*threads*/) const override {
    return 2e12;
  }

  absl::Status CheckSupport(const ConvOperation&) const override {
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<Plan>> MakePlan(
      const ConvOperation& operation, const PlanOptions&) const override {
    RETURN_IF_ERROR(device_.CheckUsable());
    RETURN_IF_ERROR(device_.Check(device_.calls().Select(), "device"));
    return cuda::MakeConvPlan(operation, {kMaxWorkspaceBytes}, &worker_);
  }

 private:
  const std::string description_;
  const std::string version_;
  mutable cuda::Device device_;
  cuda::GraphTarget target_;
  std::unique_ptr<cuda::Lane> lane_;
  mutable cuda::Worker worker_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend() {
  ASSIGN_OR_RETURN(std::string description, cuda::DescribeDevice());
  ASSIGN_OR_RETURN(cuda::GraphTarget target,
                   cuda::GraphTarget::OfCurrentDevice());
  auto backend =
      std::make_unique<CudaBackend>(std::move(description), std::move(target));
  RETURN_IF_ERROR(backend->Start());
  return backend;
}

}  // namespace convgrad
