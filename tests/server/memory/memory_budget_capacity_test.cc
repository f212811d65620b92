// Tests a budget whose capacity changes while calls hold bytes and wait.
#include <optional>
#include <utility>

#include "backends/core/status.h"
#include "gtest/gtest.h"
#include "server/memory/call_memory.h"

namespace convgrad {
namespace {

constexpr absl::Time kNever = absl::InfiniteFuture();
constexpr int64_t kMiB = int64_t{1} << 20;

class CapacityTest : public testing::Test {
 protected:
  using Result = std::optional<absl::StatusOr<Reservation>>;

  static void Run(const std::function<void()>& task) { task(); }

  void Wait(int64_t bytes, Result* result, const std::string& client = "") {
    ASSERT_TRUE(budget_
                    .Wait({bytes, Priority::kBatch, kNever, client},
                          [result](absl::StatusOr<Reservation> granted) {
                            *result = std::move(granted);
                          })
                    .ok());
  }

  Reason ReasonOf(int64_t bytes) {
    return DetailOf(budget_.TryReserve(bytes).status())
        .value_or(ErrorDetail{})
        .reason;
  }

  CallMemory memory_{100 * kMiB, 8, 10 * kMiB, Run, nullptr, 0.5};
  MemoryBudget& budget_ = memory_.budget;
};

TEST_F(CapacityTest, ALowerOneKeepsWhatIsTaken) {
  absl::StatusOr<Reservation> held = budget_.TryReserve(60 * kMiB);
  ASSERT_TRUE(held.ok());
  budget_.SetCapacity(40 * kMiB);
  EXPECT_EQ(budget_.used_bytes(), 60 * kMiB);
  EXPECT_EQ(budget_.capacity_bytes(), 40 * kMiB);
  EXPECT_EQ(ReasonOf(41 * kMiB), Reason::kLimitExceeded);
  EXPECT_EQ(ReasonOf(1), Reason::kBusy);
  EXPECT_TRUE(budget_.TryReserve(0).ok());
  EXPECT_FALSE(held->TryGrow(1).ok());
  *held = Reservation();
  EXPECT_TRUE(budget_.TryReserve(40 * kMiB).ok());
}

TEST_F(CapacityTest, ALowerOneRefusesWaitersThatNeverFit) {
  absl::StatusOr<Reservation> held = budget_.TryReserve(60 * kMiB);
  Result large, small;
  Wait(50 * kMiB, &large);
  Wait(41 * kMiB, &small);
  budget_.SetCapacity(45 * kMiB);
  ASSERT_TRUE(large.has_value());
  EXPECT_EQ(DetailOf(large->status())->reason, Reason::kLimitExceeded);
  EXPECT_EQ(DetailOf(large->status())->field, "server.memory");
  EXPECT_FALSE(small.has_value());
  EXPECT_EQ(budget_.waiters(), 1);
  *held = Reservation();
  ASSERT_TRUE(small.has_value());
  EXPECT_TRUE(small->ok());
}

TEST_F(CapacityTest, AHigherOneServesWaiters) {
  absl::StatusOr<Reservation> held = budget_.TryReserve(90 * kMiB);
  Result waiting;
  Wait(50 * kMiB, &waiting);
  EXPECT_FALSE(waiting.has_value());
  budget_.SetCapacity(140 * kMiB);
  ASSERT_TRUE(waiting.has_value());
  EXPECT_TRUE(waiting->ok());
  EXPECT_EQ(budget_.used_bytes(), 140 * kMiB);
}

TEST_F(CapacityTest, AClientsShareFollows) {
  Result first, second;
  Wait(30 * kMiB, &first, "ada");
  Wait(30 * kMiB, &second, "ada");
  EXPECT_TRUE(first.has_value());
  EXPECT_FALSE(second.has_value());
  budget_.SetCapacity(120 * kMiB);
  EXPECT_TRUE(second.has_value());
}

TEST_F(CapacityTest, FreeBuffersShrinkAtOnce) {
  for (int64_t bytes : {8 * kMiB, 16 * kMiB, 32 * kMiB}) {
    EXPECT_TRUE(memory_.pool.Take(bytes).ok());
  }
  EXPECT_EQ(memory_.pool.idle_bytes(), 56 * kMiB);
  budget_.SetCapacity(20 * kMiB);
  memory_.pool.SetMaxIdle(4 * kMiB);
  EXPECT_EQ(memory_.pool.idle_bytes(), 0);
  EXPECT_TRUE(memory_.pool.Take(8 * kMiB).ok());
  EXPECT_EQ(memory_.pool.idle_bytes(), 8 * kMiB);
}

TEST_F(CapacityTest, NoBufferIsKeptBelowWhatCallsHold) {
  absl::StatusOr<Reservation> held = budget_.TryReserve(60 * kMiB);
  EXPECT_TRUE(memory_.pool.Take(8 * kMiB).ok());
  budget_.SetCapacity(kMiB);
  memory_.pool.SetMaxIdle(0);
  EXPECT_EQ(memory_.pool.idle_bytes(), 0);
  EXPECT_TRUE(memory_.pool.Take(8 * kMiB).ok());
  EXPECT_EQ(memory_.pool.idle_bytes(), 0);
}

// A worker takes bytes for a job of a call that holds bytes already.
TEST_F(CapacityTest, AWorkersBytesCountInTheShareOfTheClient) {
  absl::StatusOr<Reservation> scratch = budget_.TryReserve(60 * kMiB, {"a"});
  ASSERT_TRUE(scratch.ok());
  Result own, other;
  Wait(kMiB, &own, "a");
  EXPECT_FALSE(own.has_value());
  // They may exceed it as long as no other client waits.
  EXPECT_TRUE(budget_.TryReserve(30 * kMiB, {"a"}).ok());
  Wait(50 * kMiB, &other, "b");
  EXPECT_FALSE(other.has_value());
  const absl::Status refused = budget_.TryReserve(kMiB, {"a"}).status();
  EXPECT_EQ(DetailOf(refused).value_or(ErrorDetail{}).reason, Reason::kBusy);
  // The only call of a client may have any size.
  EXPECT_TRUE(budget_.TryReserve(kMiB, {"a", 60 * kMiB}).ok());
  EXPECT_TRUE(budget_.TryReserve(kMiB, {"c"}).ok());
  // A job that has begun would lose its work.
  EXPECT_TRUE(budget_.TryReserve(kMiB, {"a", 0, /*has_begun=*/true}).ok());
  *scratch = Reservation();
  EXPECT_TRUE(own.has_value());
  EXPECT_TRUE(other.has_value());
}

}  // namespace
}  // namespace convgrad
