#include "backends/cuda/device/cuda_pinner.h"

#include <sys/mman.h>

#include "backends/cuda/device/cuda_device.h"
#include "gtest/gtest.h"

namespace convgrad::cuda {
namespace {

TEST(Pinner, PinsForDevicesOrSaysThatItCant) {
  constexpr int64_t kBytes = 8 << 20;
  void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const bool has_device = ListDevices().ok();
  const auto calls = MakeDeviceCalls(0);
  EXPECT_FALSE(calls->IsPinned(memory));
  const auto pinner = MakePinner();
  EXPECT_EQ(pinner->Pin(memory, kBytes), has_device);
  EXPECT_EQ(calls->IsPinned(memory), has_device);
  if (has_device) pinner->Unpin(memory);
  EXPECT_FALSE(calls->IsPinned(memory));
  munmap(memory, kBytes);
}

}  // namespace
}  // namespace convgrad::cuda
