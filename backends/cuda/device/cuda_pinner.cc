#include "backends/cuda/device/cuda_pinner.h"

#include "cuda_runtime_api.h"

namespace convgrad::cuda {
namespace {

class Pinner final : public MemoryPinner {
 public:
  bool Pin(void* data, int64_t bytes) override {
    // Pins for the contexts of all devices.
    const cudaError_t error =
        cudaHostRegister(data, bytes, cudaHostRegisterPortable);
    // Clears the runtime's error; a later launch would report it.
    if (error != cudaSuccess) (void)cudaGetLastError();
    return error == cudaSuccess;
  }
  void Unpin(void* data) override {
    if (cudaHostUnregister(data) != cudaSuccess) (void)cudaGetLastError();
  }
};

}  // namespace

std::shared_ptr<MemoryPinner> MakePinner() {
  return std::make_shared<Pinner>();
}

}  // namespace convgrad::cuda
