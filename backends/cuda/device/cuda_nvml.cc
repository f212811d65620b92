#include "backends/cuda/device/cuda_nvml.h"

#include <dlfcn.h>

#include <utility>

namespace convgrad::cuda {
namespace {

// Declarations from nvml.h, so that the build doesn't need that header.
using NvmlDevice = struct nvmlDevice_st*;
constexpr int kSuccess = 0;
struct NvmlMemory {
  unsigned long long total, free, used;
};
struct NvmlUtilization {
  unsigned int gpu, memory;  // percent
};

template <typename Function>
bool Find(void* library, const char* name, Function** function) {
  *function = reinterpret_cast<Function*>(dlsym(library, name));
  return *function != nullptr;
}

}  // namespace

struct Nvml::Functions {
  int (*init)();
  int (*shutdown)();
  int (*device_by_pci_bus_id)(const char*, NvmlDevice*);
  int (*memory)(NvmlDevice, NvmlMemory*);
  int (*utilization)(NvmlDevice, NvmlUtilization*);
};

Nvml::Nvml(std::unique_ptr<Functions> functions)
    : functions_(std::move(functions)) {}

Nvml::~Nvml() { functions_->shutdown(); }

std::unique_ptr<Nvml> Nvml::Load(const std::string& library) {
  // Never closed, because the driver's libraries don't support unloading.
  void* const handle = dlopen(library.c_str(), RTLD_NOW);
  if (handle == nullptr) return nullptr;
  auto functions = std::make_unique<Functions>();
  if (!Find(handle, "nvmlInit_v2", &functions->init) ||
      !Find(handle, "nvmlShutdown", &functions->shutdown) ||
      !Find(handle, "nvmlDeviceGetHandleByPciBusId_v2",
            &functions->device_by_pci_bus_id) ||
      !Find(handle, "nvmlDeviceGetMemoryInfo", &functions->memory) ||
      !Find(handle, "nvmlDeviceGetUtilizationRates", &functions->utilization) ||
      functions->init() != kSuccess) {
    return nullptr;
  }
  return std::unique_ptr<Nvml>(new Nvml(std::move(functions)));
}

void Nvml::Read(const std::string& pci_bus_id, DeviceState* state) const {
  NvmlDevice device;
  if (functions_->device_by_pci_bus_id(pci_bus_id.c_str(), &device) !=
      kSuccess) {
    return;
  }
  NvmlMemory memory;
  if (functions_->memory(device, &memory) == kSuccess) {
    state->memory_bytes = static_cast<int64_t>(memory.total);
    state->memory_used_bytes = static_cast<int64_t>(memory.used);
  }
  NvmlUtilization utilization;
  if (functions_->utilization(device, &utilization) == kSuccess) {
    state->utilization = utilization.gpu / 100.0;
  }
}

}  // namespace convgrad::cuda
