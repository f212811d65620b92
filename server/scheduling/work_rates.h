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
    absl::Duration predicted;
  };

  explicit WorkRates(std::function<absl::Time()> clock);

  // Returns the work of `operation` on `backend` with `threads` threads. Its
  // predicted time is zero if less than two jobs of its kind ran lately, so
  // that no job is refused for an unknown time, or for that of a first job,
  // which also reads its memory for the first time. A rate expires without a
  // job for 10 seconds, or twice the last job's time, because a rate that
  // refuses every job would never be measured again.
  Work Predict(const Backend& backend, const Operation& operation,
               int threads) const;
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
