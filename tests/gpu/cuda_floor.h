// `CudaFloor` measures cuDNN and the transfers alone, the lower bound of a
// backward operation on the GPU.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "backends/core/convolution/conv_operation.h"
#include "backends/cuda/cuda_graph.h"
#include "backends/cuda/device/cuda_device.h"

namespace convgrad {

// Uses the first device. Owned by one thread.
class CudaFloor {
 public:
  static absl::StatusOr<std::unique_ptr<CudaFloor>> Make();

  // Returns pinned memory; null if there is none. It must not outlive this.
  std::shared_ptr<void> AllocatePinned(int64_t bytes);

  // Returns the time of the operation's convolutions for the whole batch at
  // once: the faster of both orders of dims, with the fastest engine that the
  // backend may use. Requires: no ReLU, bias or residual.
  absl::StatusOr<absl::Duration> TimeGraphs(const ConvOperation& operation);

  // These functions return the median time of `runs` copies of all buffers, one
  // after the other. Requires: pinned memory.
  struct HostBuffer {
    void* data;
    int64_t bytes;
  };
  absl::StatusOr<absl::Duration> TimeUpload(absl::Span<const HostBuffer> from,
                                            int runs);
  absl::StatusOr<absl::Duration> TimeDownload(absl::Span<const HostBuffer> to,
                                              int runs);

 private:
  CudaFloor(cuda::GraphTarget target, std::unique_ptr<cuda::Device> device)
      : device_(std::move(device)), target_(std::move(target)) {}
  template <typename Copy>
  absl::StatusOr<absl::Duration> TimeCopies(
      absl::Span<const HostBuffer> buffers, int runs, const Copy& copy);

  const std::unique_ptr<cuda::Device> device_;
  const cuda::GraphTarget target_;
};

// Requires: not empty.
absl::Duration Median(std::vector<absl::Duration> times);

}  // namespace convgrad
