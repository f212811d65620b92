#include "backends/cuda/cuda_step_list.h"

#include "backends/core/status.h"

namespace convgrad::cuda {
namespace {

constexpr int64_t kAlignment = 256;

}  // namespace

void* AddressOf(const DeviceMemory& memory, const Location& location) {
  void* base = memory.scratch;
  if (location.area == Location::Area::kOperand) {
    base = memory.operands[location.index];
  } else if (location.area == Location::Area::kResult) {
    base = memory.results[location.index];
  }
  return static_cast<std::byte*>(base) + location.byte_offset;
}

Location StepList::Allocate(int64_t bytes) {
  const Location location{Location::Area::kScratch, 0, scratch_bytes_};
  scratch_bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return location;
}

void StepList::AddZero(Location location, int64_t bytes) {
  Add([=](const Context& context) {
    return context.device->Check(
        cudaMemsetAsync(context.At(location), 0, bytes, context.stream),
        "memory set");
  });
}

absl::Status StepList::Enqueue(const Context& context) const {
  for (const Step& step : steps_) RETURN_IF_ERROR(step(context));
  return absl::OkStatus();
}

}  // namespace convgrad::cuda
