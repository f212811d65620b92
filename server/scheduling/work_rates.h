// `WorkRates` learns how long work takes on this machine.
#pragma once

#include <functional>
#include <map>
#include <tuple>

#include "absl/time/time.h"
#include "backends/core/backend.h"
#include "backends/core/mutex.h"

namespace convgrad {

// `WorkRates` is thread-safe.
class WorkRates {
 public:
  // The backend, the operation's name and dtype, and the power of ten of the
  // nominal time.
  using Kind = std::tuple<const Backend*, absl::string_view, DataType, int>;
  struct Work {
    Kind kind;
    absl::Duration nominal;
  };

  explicit WorkRates(std::function<absl::Time()> clock);

  static Work Describe(const Backend& backend, const Operation& operation,
                       int threads);

  // Returns the predicted time of `work`; zero if less than two jobs of its
  // kind ran lately, so that no job is refused for an unknown time, or for that
  // of a first job, which also reads its memory for the first time. A rate
  // expires without a job for 10 seconds, or twice the last job's time, because
  // a rate that refuses every job would never be measured again.
  absl::Duration Predict(const Work& work) const;

  // Records that `work` took `measured`.
  void Learn(const Work& work, absl::Duration measured);

 private:
  struct Rate {
    double measured_by_nominal = 0;
    int measurements = 0;
    absl::Time expires = absl::InfinitePast();
  };

  const std::function<absl::Time()> clock_;
  mutable Mutex mutex_;
  std::map<Kind, Rate> rates_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace convgrad
