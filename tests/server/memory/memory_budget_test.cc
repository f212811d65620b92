#include "server/memory/memory_budget.h"

#include <atomic>
#include <list>
#include <optional>
#include <thread>
#include <vector>

#include "backends/core/status.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

constexpr absl::Time kNever = absl::InfiniteFuture();

Reason ReasonOf(const absl::Status& status) {
  return DetailOf(status).value_or(ErrorDetail{}).reason;
}

// A waiter that records its result.
struct Waiter {
  std::optional<absl::StatusOr<Reservation>> told;

  MemoryBudget::Granted Callback() {
    return [this](absl::StatusOr<Reservation> granted) {
      EXPECT_FALSE(told.has_value());
      told = std::move(granted);
    };
  }
  bool granted() const { return told.has_value() && told->ok(); }
  void Release() { told.reset(); }
};

TEST(MemoryBudget, GrantsInteractiveFirstAndBatchItsShare) {
  MemoryBudget budget(10, 10);
  absl::StatusOr<Reservation> taken = budget.TryReserve(10);
  std::string order;
  std::list<Reservation> held;
  const auto wait = [&](Priority priority) {
    const auto granted = [&, priority](absl::StatusOr<Reservation> bytes) {
      order += NameOf(priority)[0];
      held.push_back(*std::move(bytes));
    };
    ASSERT_TRUE(budget.Wait({10, priority, kNever}, granted).ok());
  };
  for (int i = 0; i < 2; ++i) wait(Priority::kBatch);
  for (int i = 0; i < 5; ++i) wait(Priority::kInteractive);
  taken = Reservation();
  while (order.size() < 7) held.pop_front();
  EXPECT_EQ(order, "iiibiib");
}

TEST(MemoryBudget, TakesAndGivesBack) {
  MemoryBudget budget(100, 0);
  {
    absl::StatusOr<Reservation> sixty = budget.TryReserve(60);
    ASSERT_TRUE(sixty.ok());
    EXPECT_EQ(budget.used_bytes(), 60);
    const absl::Status full = budget.TryReserve(41).status();
    EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(ReasonOf(full), Reason::kBusy);
    EXPECT_TRUE(budget.TryReserve(40).ok());
  }
  EXPECT_EQ(budget.used_bytes(), 0);
}

TEST(MemoryBudget, RefusesForGoodWhatCanNeverFit) {
  MemoryBudget budget(100, 5);
  EXPECT_EQ(ReasonOf(budget.TryReserve(101).status()), Reason::kLimitExceeded);
  Waiter waiter;
  EXPECT_EQ(
      ReasonOf(budget.Wait({101, Priority::kBatch, kNever}, waiter.Callback())
                   .status()),
      Reason::kLimitExceeded);
  EXPECT_FALSE(waiter.told.has_value());
}

TEST(Reservation, ShrinksSplitsAndGrows) {
  MemoryBudget budget(100, 0);
  Reservation whole = *budget.TryReserve(80);
  whole.ShrinkTo(70);
  EXPECT_EQ(budget.used_bytes(), 70);
  Reservation split = whole.Split(30);
  EXPECT_EQ(whole.bytes(), 40);
  EXPECT_EQ(split.bytes(), 30);
  EXPECT_EQ(budget.used_bytes(), 70);
  whole = Reservation();
  EXPECT_EQ(budget.used_bytes(), 30);
  EXPECT_TRUE(split.TryGrow(10).ok());
  EXPECT_EQ(split.bytes(), 40);
  split.ShrinkTo(0);
  EXPECT_EQ(budget.used_bytes(), 0);
}

TEST(MemoryBudget, GrantsAtOnceIfThereIsRoom) {
  MemoryBudget budget(100, 0);
  Waiter waiter;
  EXPECT_TRUE(
      budget.Wait({100, Priority::kBatch, kNever}, waiter.Callback()).ok());
  EXPECT_TRUE(waiter.granted());
  EXPECT_EQ(budget.used_bytes(), 100);
}

TEST(MemoryBudget, GrantsInTheOrderOfArrival) {
  MemoryBudget budget(100, 5);
  Reservation held = *budget.TryReserve(100);
  Waiter large;
  Waiter small;
  ASSERT_TRUE(
      budget.Wait({80, Priority::kBatch, kNever}, large.Callback()).ok());
  ASSERT_TRUE(
      budget.Wait({10, Priority::kBatch, kNever}, small.Callback()).ok());
  EXPECT_EQ(budget.waiters(), 2);
  held.ShrinkTo(50);  // Room for the small one, but the large one is first.
  EXPECT_FALSE(small.granted());
  held.ShrinkTo(20);
  EXPECT_TRUE(large.granted());
  EXPECT_FALSE(small.granted());
  held.ShrinkTo(10);
  EXPECT_TRUE(small.granted());
  EXPECT_EQ(budget.waiters(), 0);
  EXPECT_EQ(budget.used_bytes(), 100);
}

TEST(MemoryBudget, DoesNotOvertakeWaiters) {
  MemoryBudget budget(100, 5);
  const Reservation held = *budget.TryReserve(50);
  Waiter large;
  Waiter late;
  ASSERT_TRUE(
      budget.Wait({80, Priority::kBatch, kNever}, large.Callback()).ok());
  ASSERT_TRUE(
      budget.Wait({10, Priority::kBatch, kNever}, late.Callback()).ok());
  EXPECT_FALSE(late.granted());
  // A call that already holds bytes must be able to finish.
  EXPECT_TRUE(budget.TryReserve(10).ok());
}

TEST(MemoryBudget, SmallCallsPassALargeOneForAsLongAsItsBytes) {
  MemoryBudget budget(200, 20);
  Reservation held = *budget.TryReserve(150);
  Waiter large;
  ASSERT_TRUE(
      budget.Wait({160, Priority::kInteractive, kNever}, large.Callback())
          .ok());
  Waiter not_small;
  const uint64_t not_small_id =
      *budget.Wait({11, Priority::kBatch, kNever}, not_small.Callback());
  EXPECT_TRUE(budget.CancelWait(not_small_id));
  int passed = 0;
  for (int i = 0; i < 17; ++i) {
    Waiter small;
    const uint64_t id =
        *budget.Wait({10, Priority::kBatch, kNever}, small.Callback());
    passed += small.granted() ? 1 : 0;
    small.Release();
    EXPECT_EQ(budget.CancelWait(id), i == 16);
  }
  EXPECT_EQ(passed, 16);
  held.ShrinkTo(40);
  EXPECT_TRUE(large.granted());
}

TEST(MemoryBudget, BoundsTheWaiters) {
  MemoryBudget budget(100, 1);
  const Reservation held = *budget.TryReserve(100);
  Waiter first;
  Waiter second;
  ASSERT_TRUE(
      budget.Wait({1, Priority::kBatch, kNever}, first.Callback()).ok());
  const absl::Status refused =
      budget.Wait({1, Priority::kBatch, kNever}, second.Callback()).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refused), Reason::kBusy);
  EXPECT_FALSE(second.told.has_value());
}

TEST(MemoryBudget, NeverTellsACancelledWaiter) {
  MemoryBudget budget(100, 5);
  Reservation held = *budget.TryReserve(100);
  Waiter large;
  Waiter small;
  const uint64_t id =
      *budget.Wait({100, Priority::kBatch, kNever}, large.Callback());
  ASSERT_TRUE(
      budget.Wait({10, Priority::kBatch, kNever}, small.Callback()).ok());
  held.ShrinkTo(50);
  EXPECT_TRUE(budget.CancelWait(id));
  EXPECT_FALSE(large.told.has_value());
  EXPECT_TRUE(small.granted());  // It was only blocked.
  EXPECT_FALSE(budget.CancelWait(id));
}

TEST(MemoryBudget, CannotCancelWhatIsGranted) {
  MemoryBudget budget(100, 5);
  Waiter waiter;
  const uint64_t id =
      *budget.Wait({10, Priority::kBatch, kNever}, waiter.Callback());
  EXPECT_FALSE(budget.CancelWait(id));
}

TEST(MemoryBudget, ExpiresWaitersAtTheirDeadline) {
  MemoryBudget budget(100, 5);
  const Reservation held = *budget.TryReserve(95);
  const absl::Time start = absl::UnixEpoch();
  Waiter soon;
  Waiter later;
  ASSERT_TRUE(budget
                  .Wait({10, Priority::kBatch, start + absl::Seconds(1)},
                        soon.Callback())
                  .ok());
  ASSERT_TRUE(budget
                  .Wait({5, Priority::kBatch, start + absl::Seconds(9)},
                        later.Callback())
                  .ok());
  budget.ExpireWaiters(start);
  EXPECT_FALSE(soon.told.has_value());
  budget.ExpireWaiters(start + absl::Seconds(1));
  ASSERT_TRUE(soon.told.has_value());
  EXPECT_EQ(soon.told->status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(later.granted());
}

TEST(MemoryBudget, LeavesTheFreeingThreadToTheExecutor) {
  std::vector<std::function<void()>> tasks;
  MemoryBudget budget(100, 5, [&tasks](std::function<void()> task) {
    tasks.push_back(std::move(task));
  });
  Reservation held = *budget.TryReserve(100);
  Waiter waiter;
  ASSERT_TRUE(
      budget.Wait({10, Priority::kBatch, kNever}, waiter.Callback()).ok());
  held.ShrinkTo(0);
  EXPECT_FALSE(waiter.told.has_value());
  EXPECT_EQ(budget.used_bytes(), 10);  // Already taken.
  ASSERT_EQ(tasks.size(), 1u);
  tasks[0]();
  EXPECT_TRUE(waiter.granted());
}

MemoryBudget::Claim ClaimOf(const std::string& client, int64_t bytes) {
  return {bytes, Priority::kBatch, kNever, client};
}

class SharedBudgetTest : public testing::Test {
 protected:
  MemoryBudget budget_{100, 4,
                       [](const std::function<void()>& task) { task(); }, 0.5};
};

TEST_F(SharedBudgetTest, AClientBeyondItsShareWaitsAndOthersPass) {
  Waiter first;
  Waiter second;
  Waiter other;
  ASSERT_TRUE(budget_.Wait(ClaimOf("a", 30), first.Callback()).ok());
  ASSERT_TRUE(budget_.Wait(ClaimOf("a", 30), second.Callback()).ok());
  ASSERT_TRUE(budget_.Wait(ClaimOf("b", 50), other.Callback()).ok());
  EXPECT_TRUE(first.granted());
  EXPECT_FALSE(second.granted());
  EXPECT_TRUE(other.granted());
  first.Release();
  EXPECT_TRUE(second.granted());
}

TEST_F(SharedBudgetTest, OneCallMayBeLargerBesideHalfOfTheShare) {
  Waiter small;
  Waiter large;
  Waiter another;
  ASSERT_TRUE(budget_.Wait(ClaimOf("a", 25), small.Callback()).ok());
  ASSERT_TRUE(budget_.Wait(ClaimOf("a", 60), large.Callback()).ok());
  ASSERT_TRUE(budget_.Wait(ClaimOf("a", 1), another.Callback()).ok());
  EXPECT_TRUE(large.granted());
  EXPECT_FALSE(another.granted());
}

TEST_F(SharedBudgetTest, AClientsOwnCallsDoNotPassEachOther) {
  Waiter first;
  Waiter large;
  Waiter small;
  ASSERT_TRUE(budget_.Wait(ClaimOf("a", 30), first.Callback()).ok());
  ASSERT_TRUE(budget_.Wait(ClaimOf("a", 60), large.Callback()).ok());
  ASSERT_TRUE(budget_.Wait(ClaimOf("a", 10), small.Callback()).ok());
  EXPECT_FALSE(large.granted());
  EXPECT_FALSE(small.granted());
  first.Release();
  EXPECT_TRUE(large.granted());
  EXPECT_FALSE(small.granted());
  large.Release();
  EXPECT_TRUE(small.granted());
}

TEST_F(SharedBudgetTest, AClientsSmallCallsPassItsLargeOnes) {
  MemoryBudget budget(
      1000, 20, [](const std::function<void()>& task) { task(); }, 0.5);
  Waiter first;
  Waiter large;
  ASSERT_TRUE(budget.Wait(ClaimOf("a", 300), first.Callback()).ok());
  ASSERT_TRUE(budget.Wait(ClaimOf("a", 320), large.Callback()).ok());
  int passed = 0;
  for (int i = 0; i < 17; ++i) {
    Waiter small;
    const uint64_t id = *budget.Wait(ClaimOf("a", 20), small.Callback());
    passed += small.granted() ? 1 : 0;
    small.Release();
    EXPECT_EQ(budget.CancelWait(id), i == 16);
  }
  EXPECT_EQ(passed, 16);
  // Other clients don't wait for a call that waits for its own client.
  Waiter other;
  ASSERT_TRUE(budget.Wait(ClaimOf("b", 500), other.Callback()).ok());
  EXPECT_TRUE(other.granted());
  first.Release();
  EXPECT_TRUE(large.granted());
}

TEST_F(SharedBudgetTest, WhatACallGrowsByIsOfTheShare) {
  Waiter first;
  Waiter second;
  ASSERT_TRUE(budget_.Wait(ClaimOf("a", 30), first.Callback()).ok());
  ASSERT_TRUE(budget_.Wait(ClaimOf("a", 10), second.Callback()).ok());
  const absl::Status refused = (*second.told)->TryGrow(11);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refused), Reason::kBusy);
  EXPECT_TRUE((*second.told)->TryGrow(10).ok());
  // Beside half of the share, a call may have any size.
  EXPECT_FALSE((*first.told)->TryGrow(71).ok());
  EXPECT_TRUE((*first.told)->TryGrow(50).ok());
}

TEST_F(SharedBudgetTest, SplitsAndAdditionsCountForTheirClient) {
  Waiter first;
  Waiter second;
  ASSERT_TRUE(budget_.Wait(ClaimOf("a", 30), first.Callback()).ok());
  Reservation split = (*first.told)->Split(20);
  EXPECT_TRUE(split.TryGrow(10).ok());
  ASSERT_TRUE(budget_.Wait(ClaimOf("a", 11), second.Callback()).ok());
  EXPECT_FALSE(second.granted());
  first.Release();
  EXPECT_TRUE(second.granted());
  second.Release();
  split = Reservation();
  EXPECT_EQ(budget_.used_bytes(), 0);
}

TEST_F(SharedBudgetTest, AClientHasHalfThePlacesOfThoseThatWait) {
  Waiter held;
  ASSERT_TRUE(budget_.Wait(ClaimOf("a", 100), held.Callback()).ok());
  std::list<Waiter> waiters(3);
  for (Waiter& waiter : waiters) {
    const absl::Status status =
        budget_.Wait(ClaimOf("a", 1), waiter.Callback()).status();
    const bool last = &waiter == &waiters.back();
    EXPECT_EQ(status.ok(), !last) << status;
    if (last) {
      EXPECT_EQ(ReasonOf(status), Reason::kBusy);
    }
  }
  Waiter other;
  EXPECT_TRUE(budget_.Wait(ClaimOf("b", 1), other.Callback()).ok());
  held.Release();
  EXPECT_TRUE(other.granted());
}

TEST(MemoryBudget, NeverExceedsItsCapacityUnderManyThreads) {
  MemoryBudget budget(1000, 1000);
  std::atomic<int> granted = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        ASSERT_TRUE(budget
                        .Wait({100 + i, Priority::kBatch, kNever},
                              [&](absl::StatusOr<Reservation> reservation) {
                                ASSERT_TRUE(reservation.ok());
                                EXPECT_LE(budget.used_bytes(), 1000);
                                ++granted;
                              })
                        .ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(granted, 800);
  EXPECT_EQ(budget.used_bytes(), 0);
  EXPECT_EQ(budget.waiters(), 0);
}

}  // namespace
}  // namespace convgrad
