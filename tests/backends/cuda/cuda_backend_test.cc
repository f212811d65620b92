#include "backends/cuda/cuda_backend.h"

#include "backends/core/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

TEST(CudaBackend, StartsOnADeviceOrSaysThatThereIsNone) {
  const auto backend = MakeCudaBackend();
  if (backend.ok()) {
    EXPECT_EQ((*backend)->name(), "cuda");
    EXPECT_THAT((*backend)->capabilities().version, testing::StartsWith("9."));
    return;
  }
  EXPECT_EQ(backend.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(backend.status().message()),
              testing::HasSubstr("no CUDA device"));
  EXPECT_EQ(DetailOf(backend.status())->reason, Reason::kBackendUnavailable);
}

}  // namespace
}  // namespace convgrad
