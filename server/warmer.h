// `Warmer` runs proofs and makes plans in advance, on a thread of its own.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/machine/background_thread.h"
#include "server/proofs.h"
#include "server/scheduling/warmup.h"

namespace convgrad {

// `Warmer` is thread-safe.
class Warmer {
 public:
  // Both pointers outlive this. Plans are for `threads` threads.
  Warmer(const std::vector<RegisteredBackend>* backends, int threads,
         PlanCache* plans);

  // Makes the thread run `proofs` and make the plans of the problems in the
  // file at `path`, one problem string a line. Then the thread calls `ready`,
  // also after a failure, because calls make the plans that are missing. A null
  // `proofs` and an empty `path` mean none. Requires: `proofs` outlives this.
  // Errors: kInvalidArgument naming --warmup_file and the line.
  absl::Status Start(Proofs* proofs, const std::string& path,
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

  const std::vector<RegisteredBackend>* const backends_;
  const int threads_;
  PlanCache* const plans_;
  std::atomic<bool> stopping_{false};
  BackgroundThread thread_{1};
};

}  // namespace convgrad
