#include "backends/cuda/cuda_backend.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/core/program/conv_backend.h"
#include "backends/core/status.h"
#include "backends/cuda/cuda_conv_plan.h"
#include "backends/cuda/device/cuda_device.h"
#include "backends/cuda/device/cuda_nvml.h"
#include "backends/cuda/device/cuda_pinner.h"

namespace convgrad {
namespace {

// A device and the objects that compute on it. The members are destroyed in
// reverse order.
struct DeviceUnit {
  DeviceUnit(int index, cuda::DeviceInfo of)
      : info(std::move(of)), device(cuda::MakeDeviceCalls(index)) {}

  // Selects the device for the calling thread.
  absl::Status Select() {
    RETURN_IF_ERROR(device.CheckUsable());
    return device.Check(device.calls().Select(), "device");
  }

  absl::Status Start() {
    RETURN_IF_ERROR(Select());
    ASSIGN_OR_RETURN(cuda::GraphTarget current,
                     cuda::GraphTarget::OfCurrentDevice());
    target.emplace(std::move(current));
    ASSIGN_OR_RETURN(lane, cuda::Lane::Make(&device));
    worker.device = &device;
    worker.lane = lane.get();
    MutexLock lock(&worker.mutex);
    worker.target = &*target;
    return absl::OkStatus();
  }

  const cuda::DeviceInfo info;
  cuda::Device device;
  std::optional<cuda::GraphTarget> target;
  std::unique_ptr<cuda::Lane> lane;
  cuda::Worker worker;
};

class CudaBackend final : public ConvBackend {
 public:
  absl::Status Start() {
    ASSIGN_OR_RETURN(const auto devices, cuda::ListDevices());
    for (const auto& [index, info] : devices) {
      units_.push_back(std::make_unique<DeviceUnit>(index, info));
      RETURN_IF_ERROR(units_.back()->Start());
    }
    return absl::OkStatus();
  }

  absl::string_view name() const override { return "cuda"; }

  BackendCapabilities capabilities() const override {
    BackendCapabilities capabilities = EveryConvolution();
    capabilities.version = units_[0]->target->version();
    capabilities.description =
        absl::StrCat(units_.size(), " x ", units_[0]->info.description);
    capabilities.native_dtypes = capabilities.dtypes;
    return capabilities;
  }

  // The f32 rate of the smallest device that the build supports.
  double nominal_macs_per_second(int /*threads*/) const override {
    return 2e12;
  }

  absl::StatusOr<std::unique_ptr<Plan>> PlanConvolution(
      const ConvOperation& operation,
      const PlanOptions& options) const override {
    DeviceUnit& unit = *units_[options.device];
    RETURN_IF_ERROR(unit.Select());
    return cuda::MakeConvPlan(operation, &unit.worker);
  }

  int device_count() const override { return static_cast<int>(units_.size()); }
  bool IsLost(int device) const override {
    return units_[device]->device.is_lost();
  }
  DeviceState StateOf(int device) const override {
    const DeviceUnit& unit = *units_[device];
    DeviceState state{unit.info.description, unit.device.is_lost(), {}, {}, {}};
    if (nvml_ != nullptr) nvml_->Read(unit.info.pci_bus_id, &state);
    return state;
  }
  std::shared_ptr<MemoryPinner> pinner() const override {
    return cuda::MakePinner();
  }
  Rates rates(int /*threads*/) const override { return units_[0]->info.rates; }

 private:
  const std::unique_ptr<cuda::Nvml> nvml_ = cuda::Nvml::Load();
  std::vector<std::unique_ptr<DeviceUnit>> units_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend() {
  auto backend = std::make_unique<CudaBackend>();
  RETURN_IF_ERROR(backend->Start());
  return backend;
}

}  // namespace convgrad
