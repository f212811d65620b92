#include "server/scheduling/job_queue.h"

#include "gtest/gtest.h"
#include "tests/server/scheduling/puppet_backend.h"

namespace convgrad {
namespace {

class JobQueueTest : public testing::Test {
 protected:
  JobQueueTest() : memory_(1 << 20, 0, 0, [](const auto& task) { task(); }) {}

  // Makes a job of `batch` items, each a slice of one second.
  std::unique_ptr<ActiveJob> MakeJob(Priority priority, std::string client,
                                     int64_t batch = 1) {
    Job job;
    job.operation = std::make_shared<ConvOperation>(TinyOperation(1, batch));
    job.backend = &backend_;
    job.priority = priority;
    job.client = std::move(client);
    auto active = std::make_unique<ActiveJob>(std::move(job), means_);
    active->slice_time = absl::Seconds(1);
    return active;
  }
  void Push(Priority priority, const std::string& clients) {
    for (char client : clients) {
      queue_.Push(MakeJob(priority, std::string(1, client)));
    }
  }
  std::string PopAll() {
    std::string clients;
    while (!queue_.empty()) clients += queue_.Pop()->job.client;
    return clients;
  }

  PuppetStrings strings_;
  PuppetBackend backend_{&strings_, {.macs_per_second = 1}};
  CallMemory memory_;
  PlanCache plans_{1 << 20};
  WorkRates rates_{absl::Now};
  WorkMeans means_{&plans_, &memory_, &rates_, 1, absl::Now};
  JobQueue queue_{4};
};

TEST_F(JobQueueTest, ServesTheClientsOfAPriorityRoundRobin) {
  Push(Priority::kBatch, "aaab");
  EXPECT_EQ(PopAll(), "abaa");
}

TEST_F(JobQueueTest, InteractiveGoesFirstAndBatchIsNotStarved) {
  Push(Priority::kBatch, "bb");
  Push(Priority::kInteractive, "iiii");
  std::string served;
  // An interactive job always waits.
  for (int i = 0; i < 8; ++i) {
    served += queue_.Pop()->job.client;
    if (queue_.size(Priority::kInteractive) == 0) {
      Push(Priority::kInteractive, "i");
    }
  }
  EXPECT_EQ(served, "iiibiiib");
}

TEST_F(JobQueueTest, IsBoundedForEachPriority) {
  Push(Priority::kBatch, "abcd");
  EXPECT_TRUE(queue_.IsFull(Priority::kBatch, "d"));
  EXPECT_FALSE(queue_.IsFull(Priority::kInteractive, "d"));
  // A job that was on a worker doesn't count against the capacity.
  auto job = queue_.Pop();
  EXPECT_FALSE(queue_.IsFull(Priority::kBatch, "d"));
  job->outcome.planned = true;
  queue_.PutBack(std::move(job));
  EXPECT_EQ(queue_.size(), 4);
  EXPECT_FALSE(queue_.IsFull(Priority::kBatch, "d"));
}

TEST_F(JobQueueTest, NoClientKeepsOthersOut) {
  Push(Priority::kBatch, "mmmm");
  EXPECT_TRUE(queue_.IsFull(Priority::kBatch, "m"));
  EXPECT_FALSE(queue_.IsFull(Priority::kBatch, "a"));
  Push(Priority::kBatch, "a");
  EXPECT_TRUE(queue_.IsFull(Priority::kBatch, "a"));
  EXPECT_EQ(PopAll(), "mammm");
}

TEST_F(JobQueueTest, AJobThatIsPutBackGoesBehindOtherClients) {
  queue_.Push(MakeJob(Priority::kBatch, "long", 4));
  auto job = queue_.Pop();
  Push(Priority::kBatch, "s");
  queue_.PutBack(std::move(job));
  EXPECT_EQ(PopAll(), "slong");
}

TEST_F(JobQueueTest, RemovesWhatIsChosenAndKeepsTheOrderOfTheRest) {
  Push(Priority::kBatch, "axbx");
  Push(Priority::kInteractive, "x");
  const auto removed =
      queue_.Remove([](const ActiveJob& job) { return job.job.client == "x"; });
  EXPECT_EQ(removed.size(), 3);
  EXPECT_EQ(PopAll(), "ab");
  Push(Priority::kBatch, "abcd");
  EXPECT_TRUE(queue_.IsFull(Priority::kBatch, "d"));
}

TEST_F(JobQueueTest, WorkBeforeAJobIsWhatIsDequeuedBeforeIt) {
  const auto seconds = [this](Priority priority, const char* client,
                              int64_t slices) {
    return absl::ToInt64Seconds(queue_.WorkBefore(priority, client, slices));
  };
  EXPECT_EQ(seconds(Priority::kBatch, "a", 1), 0);
  queue_.Push(MakeJob(Priority::kBatch, "long", 100));
  // Another client waits for one slice of it before each slice of its own.
  EXPECT_EQ(seconds(Priority::kBatch, "a", 1), 1);
  EXPECT_EQ(seconds(Priority::kBatch, "a", 5), 5);
  // The same client waits for all of it.
  EXPECT_EQ(seconds(Priority::kBatch, "long", 1), 100);
  // Interactive jobs pass it, except for the share of batch.
  EXPECT_EQ(seconds(Priority::kInteractive, "a", 1), 0);
  EXPECT_EQ(seconds(Priority::kInteractive, "a", 6), 2);
  queue_.Push(MakeJob(Priority::kInteractive, "b", 100));
  EXPECT_EQ(seconds(Priority::kBatch, "a", 1), 1 + 6);
}

}  // namespace
}  // namespace convgrad
