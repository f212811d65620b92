#include "tests/gpu/cuda_floor.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "backends/core/convolution/lowering.h"
#include "backends/core/status.h"
#include "tests/gpu/engine_timing.h"

namespace convgrad {
namespace {

// The limit of cuda_backend.cc.
constexpr int64_t kMaxWorkspaceBytes = int64_t{1} << 30;

}  // namespace

absl::Duration Median(std::vector<absl::Duration> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

absl::StatusOr<std::unique_ptr<CudaFloor>> CudaFloor::Make() {
  RETURN_IF_ERROR(cuda::ListDevices().status());
  auto device = std::make_unique<cuda::Device>(cuda::MakeDeviceCalls(0));
  RETURN_IF_ERROR(device->Check(device->calls().Select(), "device"));
  ASSIGN_OR_RETURN(cuda::GraphTarget target,
                   cuda::GraphTarget::OfCurrentDevice());
  return std::unique_ptr<CudaFloor>(
      new CudaFloor(std::move(target), std::move(device)));
}

std::shared_ptr<void> CudaFloor::AllocatePinned(int64_t bytes) {
  auto memory = cuda::AllocatePinned(device_.get(), bytes);
  if (!memory.ok()) return nullptr;
  return *std::move(memory);
}

absl::StatusOr<absl::Duration> CudaFloor::TimeGraphs(
    const ConvOperation& operation) {
  const Lowering lowering(operation.problem);
  absl::Duration sum;
  for (const ResultRequest& request : operation.results) {
    absl::Duration least = absl::InfiniteDuration();
    absl::Status refusal;
    for (cuda::Format format : {cuda::Format::kNXC, cuda::Format::kNCX}) {
      const cuda::GraphSpec spec{PassFor(operation.problem, request.which),
                                 lowering.problem(),
                                 operation.dtype(),
                                 request.descriptor.dtype,
                                 format,
                                 /*bias=*/false,
                                 kMaxWorkspaceBytes,
                                 ""};
      const auto took = TimeFastestEngine(spec, target_, device_.get());
      if (took.ok()) {
        least = std::min(least, *took);
      } else {
        refusal = took.status();
      }
    }
    if (least == absl::InfiniteDuration()) return refusal;
    sum += least;
  }
  return sum;
}

template <typename Copy>
absl::StatusOr<absl::Duration> CudaFloor::TimeCopies(
    absl::Span<const HostBuffer> buffers, int runs, const Copy& copy) {
  cuda::DeviceCalls& calls = device_->calls();
  std::vector<cuda::DeviceBuffer> memory;
  for (const HostBuffer& buffer : buffers) {
    ASSIGN_OR_RETURN(memory.emplace_back(),
                     cuda::AllocateDevice(device_.get(), buffer.bytes));
  }
  ASSIGN_OR_RETURN(const cuda::Stream stream,
                   cuda::CreateStream(device_.get()));
  std::vector<absl::Duration> times;
  for (int run = -1; run < runs; ++run) {  // The first run warms up.
    const absl::Time start = absl::Now();
    for (size_t i = 0; i < buffers.size(); ++i) {
      RETURN_IF_ERROR(device_->Check(
          copy(memory[i].get(), buffers[i], stream.get()), "transfer"));
    }
    RETURN_IF_ERROR(
        device_->Check(calls.Synchronize(stream.get()), "transfer"));
    if (run >= 0) times.push_back(absl::Now() - start);
  }
  return Median(std::move(times));
}

absl::StatusOr<absl::Duration> CudaFloor::TimeUpload(
    absl::Span<const HostBuffer> from, int runs) {
  return TimeCopies(
      from, runs, [&](void* device, const HostBuffer& host, auto stream) {
        return device_->calls().Upload(device, host.data, host.bytes, stream);
      });
}

absl::StatusOr<absl::Duration> CudaFloor::TimeDownload(
    absl::Span<const HostBuffer> to, int runs) {
  return TimeCopies(
      to, runs, [&](void* device, const HostBuffer& host, auto stream) {
        return device_->calls().Download(host.data, device, host.bytes, stream);
      });
}

}  // namespace convgrad
