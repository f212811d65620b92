#include "backends/cuda/device/cuda_types.h"

#include "backends/core/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace convgrad::cuda {
namespace {

TEST(CudaTypes, ErrorsBecomeTheStatusThatTellsWhatToDo) {
  EXPECT_TRUE(StatusOf(cudaSuccess, "x").ok());
  EXPECT_EQ(StatusOf(cudaErrorMemoryAllocation, "x").code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(StatusOf(cudaErrorIllegalAddress, "x").code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(StatusOf(cudaErrorECCUncorrectable, "x").code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(StatusOf(cudaErrorInvalidValue, "x").code(),
            absl::StatusCode::kInternal);
}

TEST(CudaTypes, ErrorsNameTheCallAndTheCode) {
  const absl::Status status = StatusOf(cudaErrorLaunchFailure, "transfer");
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(testing::HasSubstr("CUDA transfer"),
                             testing::HasSubstr("cudaErrorLaunchFailure")));
  EXPECT_EQ(DetailOf(status)->reason, Reason::kBackendUnavailable);
}

TEST(CudaTypes, RunningOutOfMemoryIsNotSticky) {
  EXPECT_FALSE(IsSticky(cudaErrorMemoryAllocation));
  EXPECT_FALSE(IsSticky(cudaErrorInvalidConfiguration));
  EXPECT_TRUE(IsSticky(cudaErrorLaunchTimeout));
}

}  // namespace
}  // namespace convgrad::cuda
