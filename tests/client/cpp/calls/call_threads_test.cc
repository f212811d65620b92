// Tests how many threads run a client's calls, and how they end.
#include "client/cpp/calls/call_threads.h"

#include <algorithm>
#include <barrier>
#include <future>
#include <memory>
#include <vector>

#include "absl/time/clock.h"
#include "backends/core/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

using testing::ElementsAre;

TEST(CallThreads, OneThreadKeepsTheOrder) {
  std::vector<int> order;
  {
    CallThreads threads(1);
    std::promise<void> last;
    for (int i = 0; i < 5; ++i) {
      threads.Post([&, i](bool cancelled) {
        EXPECT_FALSE(cancelled);
        order.push_back(i);
        if (i == 4) last.set_value();
      });
    }
    last.get_future().wait();
  }
  EXPECT_THAT(order, ElementsAre(0, 1, 2, 3, 4));
}

TEST(CallThreads, RunsAsManyAtOnceAsItMayAndNoMore) {
  constexpr int kMost = 3;
  constexpr int kTasks = 4 * kMost;
  std::barrier all_run(kMost);
  Mutex mutex;
  int running = 0, most_running = 0;
  std::vector<std::promise<void>> done(kTasks);
  CallThreads threads(kMost);
  for (int i = 0; i < kTasks; ++i) {
    threads.Post([&, i](bool) {
      {
        MutexLock lock(&mutex);
        most_running = std::max(most_running, ++running);
      }
      all_run.arrive_and_wait();
      {
        MutexLock lock(&mutex);
        --running;
      }
      done[i].set_value();
    });
  }
  for (std::promise<void>& task : done) task.get_future().wait();
  MutexLock lock(&mutex);
  EXPECT_EQ(most_running, kMost);
}

TEST(CallThreads, ItsEndCancelsWhatWaitsAndWhatIsPostedThen) {
  std::promise<void> begun, may_end;
  std::vector<bool> cancelled;
  auto threads = std::make_unique<CallThreads>(1);
  CallThreads* const posted_to = threads.get();
  threads->Post([&](bool is_cancelled) {
    EXPECT_FALSE(is_cancelled);
    begun.set_value();
    may_end.get_future().wait();
    posted_to->Post([&](bool late) { cancelled.push_back(late); });
  });
  threads->Post([&](bool waiting) {
    cancelled.push_back(waiting);
    may_end.set_value();
  });
  begun.get_future().wait();
  threads.reset();
  EXPECT_THAT(cancelled, ElementsAre(true, true));
}

TEST(CallThreads, WhatACancelledTaskPostsIsCancelledThoughNoThreadIsLeft) {
  std::promise<void> begun, may_end;
  bool is_cancelled = false;
  auto threads = std::make_unique<CallThreads>(1);
  CallThreads* const posted_to = threads.get();
  threads->Post([&](bool) {
    begun.set_value();
    may_end.get_future().wait();
  });
  threads->Post([&](bool) {
    may_end.set_value();
    absl::SleepFor(absl::Milliseconds(100));  // meanwhile, the thread ends
    posted_to->Post([&](bool late) { is_cancelled = late; });
  });
  begun.get_future().wait();
  threads.reset();
  EXPECT_TRUE(is_cancelled);
}

}  // namespace
}  // namespace convgrad
