// The thread for what no call waits for: proofs, and plans in advance.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/background_thread.h"
#include "server/proofs.h"
#include "server/scheduling/warmup.h"

namespace convgrad {

// Thread-safe.
class Warmer {
 public:
  // Both outlive it. Plans are for teams of `threads`.
  Warmer(const std::vector<RegisteredBackend>* backends, int threads,
         PlanCache* plans);

  // Has the thread prove all that `proofs` has, make the plans of the problems
  // in the file, one problem string a line, and then call `ready`, whatever
  // came of these: calls make the plans that are missing. Null, "": none.
  // Requires: it outlives this.
  // Errors: kInvalidArgument naming --warmup_file or the line.
  absl::Status Start(const Proofs* proofs, const std::string& path,
                     const std::function<void()>& ready);

  // Has the thread make the plans of `work` after what came before, and call
  // `done`, once.
  void Post(std::vector<std::shared_ptr<const Operation>> work,
            std::function<bool()> give_up,
            std::function<void(const absl::StatusOr<WarmupOutcome>&)> done);

  // Gives up all work, soon.
  void Stop() { stopping_ = true; }

 private:
  // Has the thread make the plans of the file's problems, then call `ready`.
  absl::Status PostFile(const std::string& path, std::function<void()> ready);

  const std::vector<RegisteredBackend>* const backends_;
  const int threads_;
  PlanCache* const plans_;
  std::atomic<bool> stopping_{false};
  BackgroundThread thread_;
};

}  // namespace convgrad
