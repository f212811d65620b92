// Tests slices, buffers and errors with a device that computes nothing.
#include "backends/cuda/device/cuda_lane.h"

#include <cstring>
#include <numeric>

#include "backends/core/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/backends/cuda/fake_device.h"

namespace convgrad::cuda {
namespace {

using testing_support::FakeDevice;
using testing_support::FakeLog;

constexpr int64_t kCutBytes = 1200;
constexpr int64_t kWholeBytes = 77;

class LaneTest : public testing::Test {
 protected:
  LaneTest() : device_(std::make_unique<FakeDevice>(&log_)) {
    cut_.resize(kCutBytes);
    whole_.resize(kWholeBytes);
    std::iota(cut_.begin(), cut_.end(), 1);
    std::iota(whole_.begin(), whole_.end(), 100);
  }

  // Sends a tensor that is cut and a whole tensor through `slices` slices. The
  // work copies each to the result of its kind, in the device's layout.
  absl::Status Echo(Lane* lane, int64_t slices) {
    const LaneShape shape{slices,
                          {{kCutBytes, true}, {kWholeBytes, false}, {}},
                          {{kWholeBytes, false}, {kCutBytes, true}},
                          1000};
    cut_result_.assign(kCutBytes, 0);
    whole_result_.assign(kWholeBytes, 0);
    seen_.clear();
    const auto computing = lane->Run(
        shape,
        {{cut_.data(), whole_.data(), nullptr},
         {whole_result_.data(), cut_result_.data()}},
        [&](int64_t slice, const DeviceMemory& memory, cudaStream_t) {
          seen_.push_back(slice);
          std::memcpy(memory.results[1], memory.operands[0],
                      kCutBytes / slices);
          std::memcpy(memory.results[0], memory.operands[1], kWholeBytes);
          std::memset(memory.scratch, -1, 1000);
          return work_status_;
        });
    // Each operation of the device takes 2 ms.
    if (computing.ok()) {
      EXPECT_EQ(*computing, slices * absl::Milliseconds(2));
    }
    return computing.status();
  }

  FakeLog log_;
  Device device_;
  std::vector<uint8_t> cut_, whole_, cut_result_, whole_result_;
  std::vector<int64_t> seen_;
  absl::Status work_status_;
};

TEST_F(LaneTest, EverySliceMeetsItsOwnBytes) {
  const auto lane = *Lane::Make(&device_);
  for (int64_t slices : {1, 2, 3, 4, 8}) {
    ASSERT_TRUE(Echo(lane.get(), slices).ok());
    EXPECT_EQ(cut_result_, cut_) << slices;
    EXPECT_EQ(whole_result_, whole_) << slices;
    std::vector<int64_t> expected(slices);
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(seen_, expected);
  }
}

TEST_F(LaneTest, UncutTensorsCrossOnce) {
  const auto lane = *Lane::Make(&device_);
  ASSERT_TRUE(Echo(lane.get(), 8).ok());
  EXPECT_EQ(log_.calls["Upload"], 8 + 1);
  EXPECT_EQ(log_.calls["Download"], 8 + 1);
}

TEST_F(LaneTest, ASlotIsUsedAgainOnlyWhenItIsFree) {
  const auto lane = *Lane::Make(&device_);
  log_.calls.clear();
  ASSERT_TRUE(Echo(lane.get(), 2).ok());
  // Compute waits for upload, and download for compute. No buffer has to be
  // freed yet.
  EXPECT_EQ(log_.calls["Await"], 2 * 2);
  log_.calls.clear();
  ASSERT_TRUE(Echo(lane.get(), 3).ok());
  // In addition, the third upload waits for the first compute, and the third
  // compute for the first download.
  EXPECT_EQ(log_.calls["Await"], 3 * 2 + 2);
}

TEST_F(LaneTest, MemoryIsKeptFromRunToRunAndGivenBackInTheEnd) {
  {
    const auto lane = *Lane::Make(&device_);
    ASSERT_TRUE(Echo(lane.get(), 4).ok());
    ASSERT_TRUE(Echo(lane.get(), 4).ok());
    EXPECT_EQ(log_.calls["Allocate"], 1);
    EXPECT_EQ(log_.calls["AllocatePinned"], 1);
    EXPECT_GT(log_.outstanding, 0);
  }
  EXPECT_EQ(log_.outstanding, 0);
}

TEST_F(LaneTest, PinnedMemoryCrossesFromWhereItIs) {
  const auto lane = *Lane::Make(&device_);
  cut_result_.assign(kCutBytes, 0);
  log_.pinned = {cut_.data(), cut_result_.data()};
  ASSERT_TRUE(Echo(lane.get(), 3).ok());
  EXPECT_EQ(cut_result_, cut_);
  EXPECT_EQ(whole_result_, whole_);
  for (int64_t slice : {0, 1, 2}) {
    EXPECT_THAT(log_.uploaded_from,
                testing::Contains(cut_.data() + slice * kCutBytes / 3));
  }
  EXPECT_THAT(log_.uploaded_from,
              testing::Not(testing::Contains(whole_.data())));
  // A lane with no other tensors needs no pinned memory of its own.
  const auto other = *Lane::Make(&device_);
  log_.pinned.insert({whole_.data(), whole_result_.data()});
  log_.calls.clear();
  ASSERT_TRUE(Echo(other.get(), 3).ok());
  EXPECT_EQ(whole_result_, whole_);
  EXPECT_EQ(log_.calls["AllocatePinned"], 0);
}

TEST_F(LaneTest, NoDeviceMemoryIsResourceExhaustedAndTheLaneLivesOn) {
  const auto lane = *Lane::Make(&device_);
  for (const char* call : {"Allocate", "AllocatePinned"}) {
    log_.failing_call = call;
    log_.failing_from = 0;
    log_.error = cudaErrorMemoryAllocation;
    const absl::Status status = Echo(lane.get(), 4);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_TRUE(seen_.empty());
    log_.failing_call = "";
  }
  ASSERT_TRUE(Echo(lane.get(), 4).ok());
  EXPECT_EQ(cut_result_, cut_);
}

TEST_F(LaneTest, AStickyErrorTakesTheDeviceOut) {
  const auto lane = *Lane::Make(&device_);
  log_.failing_call = "Download";
  log_.failing_from = 2;
  log_.error = cudaErrorIllegalAddress;
  const absl::Status first = Echo(lane.get(), 4);
  EXPECT_EQ(first.code(), absl::StatusCode::kUnavailable) << first;
  EXPECT_EQ(log_.calls["SynchronizeStream"], 3);  // No operation is in flight.
  log_.failing_call = "";
  const absl::Status second = Echo(lane.get(), 4);
  EXPECT_EQ(second.code(), absl::StatusCode::kUnavailable) << second;
  EXPECT_TRUE(seen_.empty());
}

TEST_F(LaneTest, AFailedSliceEndsTheRunAndNotTheLane) {
  const auto lane = *Lane::Make(&device_);
  work_status_ = absl::InternalError("cuDNN says no");
  EXPECT_EQ(Echo(lane.get(), 4), work_status_);
  EXPECT_EQ(seen_.size(), 1u);
  work_status_ = absl::OkStatus();
  ASSERT_TRUE(Echo(lane.get(), 4).ok());
  EXPECT_EQ(cut_result_, cut_);
}

TEST_F(LaneTest, AFailedSliceThatTookTheDeviceIsUnavailable) {
  const auto lane = *Lane::Make(&device_);
  work_status_ = absl::InternalError("cuDNN says no");
  log_.failing_call = "SynchronizeStream";
  log_.error = cudaErrorIllegalAddress;
  EXPECT_EQ(Echo(lane.get(), 4).code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(device_.is_lost());
}

TEST_F(LaneTest, WhatFailsAtTheStartLeavesNothingBehind) {
  log_.failing_call = "CreateEvent";
  log_.failing_from = 3;
  log_.error = cudaErrorMemoryAllocation;
  const auto lane = Lane::Make(&device_);
  EXPECT_EQ(lane.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(log_.outstanding, 0);
}

}  // namespace
}  // namespace convgrad::cuda
