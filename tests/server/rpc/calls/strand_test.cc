#include "server/rpc/calls/strand.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace convgrad {
namespace {

TEST(StrandTest, RunsATaskAtOnceIfNoneRuns) {
  const auto strand = std::make_shared<Strand>();
  bool ran = false;
  strand->Run([&] { ran = true; });
  EXPECT_TRUE(ran);
}

TEST(StrandTest, RunsATasksOwnTasksAfterIt) {
  const auto strand = std::make_shared<Strand>();
  std::vector<int> order;
  strand->Run([&] {
    strand->Run([&] {
      strand->Run([&] { order.push_back(4); });
      order.push_back(2);
    });
    strand->Run([&] { order.push_back(3); });
    order.push_back(1);
  });
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3, 4}));
}

TEST(StrandTest, LeavesOtherThreadsTasksToTheRunningThreadInTheirOrder) {
  const auto strand = std::make_shared<Strand>();
  std::vector<int> order;
  std::thread::id ran_on;
  strand->Run([&] {
    std::thread([&] {
      strand->Run([&] {
        order.push_back(2);
        ran_on = std::this_thread::get_id();
      });
      strand->Run([&] { order.push_back(3); });
    }).join();
    order.push_back(1);
  });
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(ran_on, std::this_thread::get_id());
}

TEST(StrandTest, TasksNeverOverlapAndKeepTheOrderOfEachThread) {
  constexpr int kThreads = 8;
  constexpr int kTasks = 2000;
  const auto strand = std::make_shared<Strand>();
  std::atomic<int> inside{0};
  std::atomic<int> started{0};
  // Only the strand guards it.
  std::vector<std::vector<int>> came(kThreads);
  bool met = false;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      ++started;
      while (started < kThreads) std::this_thread::yield();
      for (int task = 0; task < kTasks; ++task) {
        strand->Run([&, thread, task] {
          if (inside.fetch_add(1) != 0) met = true;
          came[thread].push_back(task);
          --inside;
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(met);
  for (const std::vector<int>& tasks : came) {
    ASSERT_EQ(tasks.size(), kTasks);
    EXPECT_TRUE(std::is_sorted(tasks.begin(), tasks.end()));
  }
}

TEST(StrandTest, CloseDropsWaitingAndLaterTasks) {
  const auto strand = std::make_shared<Strand>();
  const auto dropped = std::make_shared<int>();
  bool ran = false;
  bool went_on = false;
  strand->Run([&] {
    strand->Run([&ran, dropped] { ran = true; });
    strand->Close();
    EXPECT_EQ(dropped.use_count(), 1) << "a dropped task keeps what it holds";
    strand->Run([&] { ran = true; });
    went_on = true;
  });
  strand->Run([&] { ran = true; });
  EXPECT_TRUE(went_on);
  EXPECT_FALSE(ran);
}

TEST(StrandTest, LivesUntilItsTaskReturns) {
  auto strand = std::make_shared<Strand>();
  const std::weak_ptr<Strand> watch = strand;
  strand->Run([&] {
    strand->Close();
    strand.reset();
    EXPECT_FALSE(watch.expired());
  });
  EXPECT_TRUE(watch.expired());
}

TEST(StrandTest, IfOpenActsUntilTheStrandIsClosed) {
  const auto strand = std::make_shared<Strand>();
  int acted = 0;
  strand->IfOpen([&] { ++acted; });
  strand->Run([&] {
    strand->IfOpen([&] { ++acted; });
    strand->Close();
  });
  strand->IfOpen([&] { ++acted; });
  EXPECT_EQ(acted, 2);
}

TEST(StrandTest, IfOpenKeepsCloseWaiting) {
  // The task calls Close while the action runs, which then continues for a
  // while. A Close that doesn't wait would return before the action does.
  const auto strand = std::make_shared<Strand>();
  std::atomic<bool> acting{false};
  std::atomic<bool> closing{false};
  std::atomic<bool> closed{false};
  std::atomic<bool> running{false};
  std::thread closer([&] {
    strand->Run([&] {
      running = true;
      while (!acting) std::this_thread::yield();
      closing = true;
      strand->Close();
      closed = true;
    });
  });
  while (!running) std::this_thread::yield();
  bool closed_meanwhile = false;
  strand->IfOpen([&] {
    acting = true;
    while (!closing) std::this_thread::yield();
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    closed_meanwhile = closed;
  });
  closer.join();
  EXPECT_FALSE(closed_meanwhile);
  EXPECT_TRUE(closed);
}

}  // namespace
}  // namespace convgrad
