#include "server/machine/background_thread.h"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

TEST(BackgroundThread, RunsTasksInOrder) {
  std::vector<int> ran;
  {
    BackgroundThread thread(absl::Hours(1), [] {});
    for (int i = 0; i < 100; ++i) {
      thread.Post([&ran, i] { ran.push_back(i); });
    }
  }
  ASSERT_EQ(ran.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(ran[i], i);
}

TEST(BackgroundThread, RunsAsManyTasksAtOnceAsItHasThreads) {
  Mutex mutex;
  CondVar changed;
  int running = 0;
  bool met = false;
  BackgroundThread threads(2);
  EXPECT_TRUE(threads.is_idle());
  for (int i = 0; i < 2; ++i) {
    threads.Post([&] {
      MutexLock lock(&mutex);
      if (++running == 2) met = true;
      changed.NotifyAll();
      while (!met) changed.Wait(&mutex);
    });
  }
  {
    MutexLock lock(&mutex);
    while (!met) changed.Wait(&mutex);
  }
  while (!threads.is_idle()) std::this_thread::yield();
}

TEST(BackgroundThread, OwnersTakeTurns) {
  std::string ran;
  {
    std::atomic<bool> has_begun = false;
    std::atomic<bool> is_posted = false;
    BackgroundThread thread(1);
    thread.Post([&] {
      has_begun = true;
      while (!is_posted) std::this_thread::yield();
    });
    while (!has_begun) std::this_thread::yield();
    const auto post = thread.executor();
    for (const char* owner : {"b", "b", "b", "b", "a", "c", "c"}) {
      post(owner, [&ran, owner] { ran += owner; });
    }
    is_posted = true;
  }
  EXPECT_EQ(ran, "abcbcbb");
}

TEST(BackgroundThread, TicksAgainAndAgain) {
  Mutex mutex;
  CondVar changed;
  int ticks = 0;
  BackgroundThread thread(absl::Milliseconds(1), [&] {
    MutexLock lock(&mutex);
    ++ticks;
    changed.NotifyAll();
  });
  MutexLock lock(&mutex);
  while (ticks < 3) changed.Wait(&mutex);
}

TEST(BackgroundThread, ATickKeepsItsState) {
  std::atomic<int> last = 0;
  BackgroundThread thread(absl::Milliseconds(1),
                          [&last, ticks = 0]() mutable { last = ++ticks; });
  const absl::Time limit = absl::Now() + absl::Seconds(10);
  while (last < 3 && absl::Now() < limit) std::this_thread::yield();
  EXPECT_GE(last, 3);
}

}  // namespace
}  // namespace convgrad
