// The thread for what no call waits for: proofs, and plans in advance.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/background_thread.h"
#include "server/scheduling/warmup.h"

namespace convgrad {

// Thread-safe.
class Warmer {
 public:
  // Both outlive it. Plans are for teams of `threads`.
  Warmer(const std::vector<RegisteredBackend>* backends, int threads,
         PlanCache* plans);

  // Has `task` run after what was posted before; it may ask whether to give up.
  void PostTask(std::function<void(const std::function<bool()>& give_up)> task);

  // Has the work done likewise, and tells `done`, once.
  void Post(std::vector<std::shared_ptr<const Operation>> work,
            std::function<bool()> give_up,
            std::function<void(const absl::StatusOr<WarmupOutcome>&)> done);

  // Likewise for the problems of a file, one problem string a line; then calls
  // `ready`, whatever came of it: calls make the plans that are missing.
  // Errors: kInvalidArgument naming --warmup_file or the line.
  absl::Status PostFile(const std::string& path, std::function<void()> ready);

  // Gives up all work, soon.
  void Stop() { stopping_ = true; }

 private:
  const std::vector<RegisteredBackend>* const backends_;
  const int threads_;
  PlanCache* const plans_;
  std::atomic<bool> stopping_{false};
  BackgroundThread thread_;
};

}  // namespace convgrad
