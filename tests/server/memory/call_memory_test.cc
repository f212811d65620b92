#include "server/memory/call_memory.h"

#include <optional>
#include <utility>

#include "gtest/gtest.h"

namespace convgrad {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// Tests with 16 MiB for calls and 1 MiB for idle buffers.
class CallMemoryTest : public testing::Test {
 protected:
  Reservation MustReserve(int64_t bytes) {
    absl::StatusOr<Reservation> reservation = memory_.budget.TryReserve(bytes);
    EXPECT_TRUE(reservation.ok()) << reservation.status();
    return *std::move(reservation);
  }

  // Takes and returns a buffer, so that it is free.
  void UseOnce(int64_t bytes) {
    const Reservation reservation = MustReserve(bytes);
    EXPECT_TRUE(memory_.pool.Take(bytes).ok());
  }

  CallMemory memory_{16 * kMiB, 4, kMiB,
                     [](const std::function<void()>& task) { task(); }};
};

TEST_F(CallMemoryTest, KeepsFreeBuffersInWhatNobodyUsesOfTheBudget) {
  UseOnce(8 * kMiB);
  EXPECT_EQ(memory_.pool.idle_bytes(), 8 * kMiB);
  const Reservation others = MustReserve(8 * kMiB);
  EXPECT_EQ(memory_.pool.idle_bytes(), 8 * kMiB);
}

TEST_F(CallMemoryTest, GivesThemUpOnceSomebodyTakesTheirBytes) {
  UseOnce(8 * kMiB);
  Reservation others = MustReserve(8 * kMiB);
  ASSERT_TRUE(others.TryGrow(kMiB).ok());
  EXPECT_EQ(memory_.pool.idle_bytes(), 8 * kMiB);
  ASSERT_TRUE(others.TryGrow(64).ok());
  EXPECT_EQ(memory_.pool.idle_bytes(), 0);
}

TEST_F(CallMemoryTest, GivesThemUpBeforeSomebodyWhoWaitedHasTheirBytes) {
  UseOnce(8 * kMiB);
  std::optional<Reservation> others = MustReserve(8 * kMiB);
  int64_t idle_bytes = -1;
  const auto waiting = memory_.budget.Wait(
      {16 * kMiB, Priority::kInteractive, absl::InfiniteFuture()},
      [&](const auto&) { idle_bytes = memory_.pool.idle_bytes(); });
  ASSERT_TRUE(waiting.ok());
  EXPECT_EQ(idle_bytes, -1);
  others.reset();
  EXPECT_EQ(idle_bytes, 0);
}

TEST_F(CallMemoryTest, KeepsNoneWhileAllIsUsed) {
  Reservation all = MustReserve(16 * kMiB);
  {
    const absl::StatusOr<Buffer> small = memory_.pool.Take(kMiB);
    const absl::StatusOr<Buffer> large = memory_.pool.Take(8 * kMiB);
  }
  EXPECT_EQ(memory_.pool.idle_bytes(), kMiB);
}

}  // namespace
}  // namespace convgrad
