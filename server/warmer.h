// `Warmer` runs proofs and makes plans in advance, on a thread of its own.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/compute_engine.h"
#include "server/machine/background_thread.h"
#include "server/scheduling/warmup.h"

namespace convgrad {

// `Warmer` is thread-safe.
class Warmer {
 public:
  // `engine` outlives this. Plans are for `threads` threads.
  Warmer(ComputeEngine* engine, int threads);

  // Makes the thread run the engine's proofs if `proves`, and make the plans of
  // the problems in the file at `path`, one problem string a line. Then the
  // thread calls `ready`, also after a failure, because calls make the plans
  // that are missing. An empty `path` means no problems.
  // Errors: kInvalidArgument, and kResourceExhausted for a problem that calls
  // may not have; both name --warmup_file and the line.
  absl::Status Start(bool proves, const std::string& path,
                     const std::function<void()>& ready);

  // Makes the thread make the plans of `work` after the work posted before, and
  // call `done` once.
  void Post(std::vector<std::shared_ptr<const Operation>> work,
            std::function<bool()> give_up, WarmupDone done);

  // Makes the thread give up its work soon.
  void Stop() { stopping_ = true; }

 private:
  // Makes the thread make the plans of the file's problems, then call `ready`.
  absl::Status PostFile(const std::string& path, std::function<void()> ready);

  ComputeEngine& engine_;
  const int threads_;
  std::atomic<bool> stopping_{false};
  BackgroundThread thread_{1};
};

}  // namespace convgrad
