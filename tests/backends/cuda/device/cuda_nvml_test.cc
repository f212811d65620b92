#include "backends/cuda/device/cuda_nvml.h"

#include "gtest/gtest.h"

namespace convgrad::cuda {
namespace {

TEST(Nvml, TellsWhatTheLibraryKnows) {
  const auto nvml = Nvml::Load(CONVGRAD_FAKE_NVML);
  ASSERT_NE(nvml, nullptr);
  DeviceState state;
  nvml->Read("0000:01:00.0", &state);
  EXPECT_EQ(state.memory_bytes, 1000);
  EXPECT_EQ(state.memory_used_bytes, 400);
  EXPECT_FALSE(state.utilization.has_value());
  DeviceState other;
  nvml->Read("0000:02:00.0", &other);
  EXPECT_FALSE(other.memory_bytes.has_value());
}

TEST(Nvml, IsNothingWhereThereIsNone) {
  EXPECT_EQ(Nvml::Load("libnvidia-ml-that-is-not-there.so.1"), nullptr);
  // The file is a library, but not NVML.
  EXPECT_EQ(Nvml::Load("libc.so.6"), nullptr);
}

}  // namespace
}  // namespace convgrad::cuda
