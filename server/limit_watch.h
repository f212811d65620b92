// `LimitWatch` makes a running server follow the limits of its cgroup.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "server/compute_engine.h"
#include "server/flags/config.h"
#include "server/machine/machine.h"

namespace convgrad {

// `LimitWatch` reads the limits of memory and CPU time again at each Look.
//
// Memory: if no flag sets the budget, it becomes half of the new limit, and all
// that follows from it changes as WithDefaults computes it.
// CPU time: the share of the workers that take jobs becomes the share of the
// cores that are left. The threads of a worker stay, because results depend on
// them.
//
// A file that can't be read changes nothing. The log has a line for each
// change. Look has one thread; the other functions are thread-safe.
class LimitWatch {
 public:
  // Limits the bytes that gRPC may buffer. gRPC ends calls beyond the limit.
  using SetQuota = std::function<void(int64_t bytes)>;

  // `flags` is the configuration before WithDefaults, for `machine`. `engine`
  // outlives this. Calls `set_quota` with the calls' memory, now and at
  // changes.
  LimitWatch(Config flags, Machine machine, ComputeEngine* engine,
             SetQuota set_quota);

  // Reads the limits again. Call it regularly.
  void Look();

  // The current budget of the process. Thread-safe.
  int64_t budget_bytes() const { return budget_bytes_; }

 private:
  void FollowMemory();
  void FollowCores();
  // Lowers the quota only when what calls hold is below it.
  void ResizeQuota();

  const Config flags_;
  // With the defaults of the limits at the last Look.
  Config config_;
  // The machine as it was at the start.
  const Machine first_;
  ComputeEngine* const engine_;
  Machine machine_;
  std::atomic<int64_t> budget_bytes_;
  const SetQuota set_quota_;
  int64_t quota_bytes_ = 0;
};

}  // namespace convgrad
