#include "backends/cuda/cuda_device.h"

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "backends/cuda/cuda_types.h"

namespace convgrad::cuda {
namespace {

class RuntimeCalls final : public DeviceCalls {
 public:
  explicit RuntimeCalls(int index) : index_(index) {}

  cudaError_t Allocate(void** memory, size_t bytes) override {
    return cudaMalloc(memory, bytes);
  }
  cudaError_t Free(void* memory) override { return cudaFree(memory); }
  cudaError_t AllocatePinned(void** memory, size_t bytes) override {
    return cudaMallocHost(memory, bytes);
  }
  cudaError_t FreePinned(void* memory) override { return cudaFreeHost(memory); }
  cudaError_t CreateStream(cudaStream_t* stream) override {
    return cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking);
  }
  cudaError_t DestroyStream(cudaStream_t stream) override {
    return cudaStreamDestroy(stream);
  }
  cudaError_t CreateEvent(cudaEvent_t* event) override {
    return cudaEventCreateWithFlags(event, cudaEventDisableTiming);
  }
  cudaError_t DestroyEvent(cudaEvent_t event) override {
    return cudaEventDestroy(event);
  }
  cudaError_t Record(cudaEvent_t event, cudaStream_t stream) override {
    return cudaEventRecord(event, stream);
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
  const int index_;
};

// Makes a handle with `create`, one of the calls.
template <typename Handle, typename Create, typename... Arguments>
absl::StatusOr<Handle> Make(Device* device, absl::string_view what,
                            Create create, Arguments... arguments) {
  typename Handle::pointer raw = nullptr;
  RETURN_IF_ERROR(
      device->Check((device->calls().*create)(&raw, arguments...), what));
  return Handle(raw, {&device->calls()});
}

}  // namespace

std::unique_ptr<DeviceCalls> MakeDeviceCalls(int index) {
  return std::make_unique<RuntimeCalls>(index);
}

absl::StatusOr<std::string> DescribeDevice() {
  const auto none = [](absl::string_view found) {
    return MakeError(absl::StatusCode::kFailedPrecondition,
                     {Reason::kBackendUnavailable, "backend cuda",
                      absl::StrCat("no CUDA device (", found, ")"),
                      "a device and its driver"});
  };
  int count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count == 0) error = cudaErrorNoDevice;
  if (error != cudaSuccess) return none(cudaGetErrorString(error));
  cudaDeviceProp properties;
  error = cudaGetDeviceProperties(&properties, 0);
  if (error != cudaSuccess) return none(cudaGetErrorString(error));
  return absl::StrCat(properties.name, ", sm_", properties.major,
                      properties.minor);
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

absl::StatusOr<Event> CreateEvent(Device* device) {
  return Make<Event>(device, "event", &DeviceCalls::CreateEvent);
}

}  // namespace convgrad::cuda
