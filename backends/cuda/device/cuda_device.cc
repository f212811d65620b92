#include "backends/cuda/device/cuda_device.h"

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "backends/cuda/device/cuda_types.h"

namespace convgrad::cuda {
namespace {

class RuntimeCalls final : public DeviceCalls {
 public:
  explicit RuntimeCalls(int index) : index_(index) {}

  cudaError_t Allocate(void** memory, size_t bytes) override {
    return Forget(cudaMalloc(memory, bytes));
  }
  cudaError_t Free(void* memory) override { return cudaFree(memory); }
  cudaError_t AllocatePinned(void** memory, size_t bytes) override {
    return Forget(cudaMallocHost(memory, bytes));
  }
  cudaError_t FreePinned(void* memory) override { return cudaFreeHost(memory); }
  bool IsPinned(const void* memory) override {
    cudaPointerAttributes attributes;
    return Forget(cudaPointerGetAttributes(&attributes, memory)) ==
               cudaSuccess &&
           attributes.type == cudaMemoryTypeHost;
  }
  cudaError_t CreateStream(cudaStream_t* stream) override {
    return cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking);
  }
  cudaError_t DestroyStream(cudaStream_t stream) override {
    return cudaStreamDestroy(stream);
  }
  cudaError_t CreateEvent(cudaEvent_t* event, bool timed) override {
    return cudaEventCreateWithFlags(
        event, timed ? cudaEventDefault : cudaEventDisableTiming);
  }
  cudaError_t DestroyEvent(cudaEvent_t event) override {
    return cudaEventDestroy(event);
  }
  cudaError_t Record(cudaEvent_t event, cudaStream_t stream) override {
    return cudaEventRecord(event, stream);
  }
  cudaError_t Elapsed(float* milliseconds, cudaEvent_t begin,
                      cudaEvent_t end) override {
    return cudaEventElapsedTime(milliseconds, begin, end);
  }
  cudaError_t Await(cudaStream_t stream, cudaEvent_t event) override {
    return cudaStreamWaitEvent(stream, event, 0);
  }
  cudaError_t Synchronize(cudaEvent_t event) override {
    return cudaEventSynchronize(event);
  }
  cudaError_t Synchronize(cudaStream_t stream) override {
    return cudaStreamSynchronize(stream);
  }
  cudaError_t Upload(void* device, const void* pinned, size_t bytes,
                     cudaStream_t stream) override {
    return cudaMemcpyAsync(device, pinned, bytes, cudaMemcpyHostToDevice,
                           stream);
  }
  cudaError_t Download(void* pinned, const void* device, size_t bytes,
                       cudaStream_t stream) override {
    return cudaMemcpyAsync(pinned, device, bytes, cudaMemcpyDeviceToHost,
                           stream);
  }
  cudaError_t Select() override { return cudaSetDevice(index_); }

 private:
  // Clears the runtime's error after returning it; a later launch would report
  // it again.
  static cudaError_t Forget(cudaError_t error) {
    if (error != cudaSuccess) (void)cudaGetLastError();
    return error;
  }

  const int index_;
};

// Makes a handle with `create`, a member of DeviceCalls.
template <typename Handle, typename Create, typename... Arguments>
absl::StatusOr<Handle> Make(Device* device, absl::string_view what,
                            Create create, Arguments... arguments) {
  typename Handle::pointer raw = nullptr;
  RETURN_IF_ERROR(
      device->Check((device->calls().*create)(&raw, arguments...), what));
  return Handle(raw, {&device->calls()});
}

// Returns an attribute, 0 if the driver doesn't know it.
double Attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  return cudaDeviceGetAttribute(&value, which, device) == cudaSuccess ? value
                                                                      : 0;
}

// Estimates that were not measured: the share of the peak that convolutions
// reach, and the rate of transfers on PCIe 4 x16 from memory that may need a
// copy first.
constexpr double kReached = 0.3;
constexpr double kTransferBytes = 1e10;
constexpr absl::Duration kOverhead = absl::Microseconds(100);

Rates RatesOf(const cudaDeviceProp& properties, int device) {
  const double clocks = 1e3 * Attribute(cudaDevAttrClockRate, device) *
                        properties.multiProcessorCount;
  // Multiply-adds per SM and clock. Source: CUDA C++ programming guide,
  // "arithmetic instructions", and the architectures' white papers for tensor
  // cores.
  const bool is_server_class = properties.minor == 0;
  const double f32 = is_server_class && properties.major < 9 ? 64 : 128;
  const double tensor = properties.major >= 9 && is_server_class   ? 2048
                        : properties.major == 8 && is_server_class ? 1024
                                                                   : 512;
  const double peak = 2 * kReached * clocks;
  return {
      {peak * f32, peak * tensor, peak * tensor}, kTransferBytes, kOverhead};
}

cudaError_t Describe(int index, DeviceInfo* device) {
  cudaDeviceProp properties;
  cudaError_t error = cudaGetDeviceProperties(&properties, index);
  if (error != cudaSuccess) return error;
  char pci_bus_id[32];
  error = cudaDeviceGetPCIBusId(pci_bus_id, sizeof(pci_bus_id), index);
  if (error != cudaSuccess) return error;
  device->description = absl::StrCat(properties.name, ", sm_", properties.major,
                                     properties.minor);
  device->pci_bus_id = pci_bus_id;
  device->rates = RatesOf(properties, index);
  return cudaSuccess;
}

}  // namespace

std::unique_ptr<DeviceCalls> MakeDeviceCalls(int index) {
  return std::make_unique<RuntimeCalls>(index);
}

absl::StatusOr<std::map<int, DeviceInfo>> ListDevices() {
  const auto none = [](cudaError_t error) {
    return MakeError(
        absl::StatusCode::kFailedPrecondition,
        {Reason::kBackendUnavailable, "backend cuda",
         absl::StrCat("no CUDA device (", cudaGetErrorString(error), ")"),
         "a device and its driver"});
  };
  int count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count == 0) error = cudaErrorNoDevice;
  if (error != cudaSuccess) return none(error);
  std::map<int, DeviceInfo> devices;
  for (int i = 0; i < count; ++i) {
    DeviceInfo device;
    error = Describe(i, &device);
    if (error != cudaSuccess) return none(error);
    if (i == 0 || device.description == devices[0].description) {
      devices.emplace(i, std::move(device));
    }
  }
  return devices;
}

absl::Status Device::Check(cudaError_t error, absl::string_view what) {
  if (IsSticky(error)) is_lost_ = true;
  return StatusOf(error, what);
}

absl::Status Device::CheckUsable() const {
  if (!is_lost_) return absl::OkStatus();
  return MakeError(absl::StatusCode::kUnavailable,
                   {Reason::kBackendUnavailable, "backend cuda",
                    "a device that an earlier error took out",
                    "a server that was started since"});
}

absl::StatusOr<DeviceBuffer> AllocateDevice(Device* device, int64_t bytes) {
  return Make<DeviceBuffer>(device, "device memory", &DeviceCalls::Allocate,
                            static_cast<size_t>(bytes));
}

absl::StatusOr<PinnedBuffer> AllocatePinned(Device* device, int64_t bytes) {
  return Make<PinnedBuffer>(device, "pinned memory",
                            &DeviceCalls::AllocatePinned,
                            static_cast<size_t>(bytes));
}

absl::StatusOr<Stream> CreateStream(Device* device) {
  return Make<Stream>(device, "stream", &DeviceCalls::CreateStream);
}

absl::StatusOr<Event> CreateEvent(Device* device, bool timed) {
  return Make<Event>(device, "event", &DeviceCalls::CreateEvent, timed);
}

}  // namespace convgrad::cuda
