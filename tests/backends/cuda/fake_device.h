// `FakeDevice` is a device that computes nothing. It accepts calls, moves
// bytes, counts the handles and buffers that it gives out, and fails the calls
// that a test names.
#pragma once

#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backends/cuda/device/cuda_device.h"

namespace convgrad::cuda::testing_support {

// `FakeLog` is the record of a FakeDevice that a test reads. It exists longer
// than the FakeDevice, which belongs to a Device.
struct FakeLog {
  // The number of handles and buffers that are in use.
  int outstanding = 0;
  std::map<std::string, int> calls;
  // Calls of this name fail, from call number failing_from on (0 is the first).
  std::string failing_call;
  int failing_from = 0;
  cudaError_t error = cudaSuccess;
  // The pinned host memory, and the sources of all uploads.
  std::set<const void*> pinned;
  std::vector<const void*> uploaded_from;
};

// `FakeDevice` is owned by one thread.
class FakeDevice final : public DeviceCalls {
 public:
  explicit FakeDevice(FakeLog* log) : log_(*log) {}

  cudaError_t Allocate(void** memory, size_t bytes) override {
    return Lend("Allocate", memory, bytes);
  }
  cudaError_t Free(void* memory) override { return TakeBack(memory); }
  cudaError_t AllocatePinned(void** memory, size_t bytes) override {
    return Lend("AllocatePinned", memory, bytes);
  }
  cudaError_t FreePinned(void* memory) override { return TakeBack(memory); }
  bool IsPinned(const void* memory) override {
    return log_.pinned.count(memory) > 0;
  }
  cudaError_t CreateStream(cudaStream_t* stream) override {
    return Lend("CreateStream", reinterpret_cast<void**>(stream), 1);
  }
  cudaError_t DestroyStream(cudaStream_t stream) override {
    return TakeBack(stream);
  }
  cudaError_t CreateEvent(cudaEvent_t* event, bool /*timed*/) override {
    return Lend("CreateEvent", reinterpret_cast<void**>(event), 1);
  }
  cudaError_t DestroyEvent(cudaEvent_t event) override {
    return TakeBack(event);
  }
  cudaError_t Record(cudaEvent_t, cudaStream_t) override {
    return Call("Record");
  }
  cudaError_t Elapsed(float* milliseconds, cudaEvent_t, cudaEvent_t) override {
    *milliseconds = 2;
    return Call("Elapsed");
  }
  cudaError_t Await(cudaStream_t, cudaEvent_t) override {
    return Call("Await");
  }
  cudaError_t Synchronize(cudaEvent_t) override {
    return Call("SynchronizeEvent");
  }
  cudaError_t Synchronize(cudaStream_t) override {
    return Call("SynchronizeStream");
  }
  cudaError_t Upload(void* device, const void* pinned, size_t bytes,
                     cudaStream_t) override {
    log_.uploaded_from.push_back(pinned);
    return Copy("Upload", device, pinned, bytes);
  }
  cudaError_t Download(void* pinned, const void* device, size_t bytes,
                       cudaStream_t) override {
    return Copy("Download", pinned, device, bytes);
  }
  cudaError_t Select() override { return Call("Select"); }

 private:
  cudaError_t Call(const std::string& name) {
    const int number = log_.calls[name]++;
    return name == log_.failing_call && number >= log_.failing_from
               ? log_.error
               : cudaSuccess;
  }

  cudaError_t Lend(const std::string& name, void** handle, size_t bytes) {
    if (const cudaError_t error = Call(name)) return error;
    *handle = std::malloc(bytes);
    ++log_.outstanding;
    return cudaSuccess;
  }

  cudaError_t TakeBack(void* handle) {
    std::free(handle);
    --log_.outstanding;
    return cudaSuccess;
  }

  cudaError_t Copy(const std::string& name, void* to, const void* from,
                   size_t bytes) {
    if (const cudaError_t error = Call(name)) return error;
    std::memcpy(to, from, bytes);
    return cudaSuccess;
  }

  FakeLog& log_;
};

}  // namespace convgrad::cuda::testing_support
