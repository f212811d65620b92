// `Ending` lets a test wait for the end of a job.
#pragma once

#include <functional>
#include <optional>
#include <utility>

#include "backends/core/mutex.h"
#include "backends/core/status.h"
#include "gtest/gtest.h"
#include "server/scheduling/job.h"

namespace convgrad {

// The outcome of one job.
class Ending {
 public:
  std::function<void(JobOutcome)> Callback() {
    return [this](JobOutcome outcome) {
      MutexLock lock(&mutex_);
      EXPECT_FALSE(outcome_.has_value()) << "ended twice";
      outcome_ = std::move(outcome);
      changed_.NotifyAll();
    };
  }
  bool ended() {
    MutexLock lock(&mutex_);
    return outcome_.has_value();
  }
  JobOutcome Await() {
    MutexLock lock(&mutex_);
    while (!outcome_) changed_.Wait(&mutex_);
    return *outcome_;
  }
  absl::StatusCode AwaitCode() { return Await().status.code(); }
  Reason AwaitReason() {
    return DetailOf(Await().status).value_or(ErrorDetail{}).reason;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::optional<JobOutcome> outcome_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace convgrad
