// `Proofs` runs the proofs of backends at the start and reports their failures.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "backends/registry.h"
#include "server/rpc/transport/readiness.h"

namespace convgrad {

// `Proofs` reports operations that backends compute wrongly on this machine to
// log, health and metrics. Thread-safe.
class Proofs {
 public:
  // Starts the self-proof of the backends of `*backends` whose results depend
  // on the CPU. This outlives them.
  explicit Proofs(std::vector<RegisteredBackend>* backends);

  // Returns whether there is nothing to prove.
  bool empty() const { return proven_.empty(); }

  // Proves every family of operations for `threads` threads, on the calling
  // thread. Stops when `give_up` returns true.
  void Run(int threads, const std::function<bool()>& give_up);

  // Reports failures to `readiness`, including earlier ones, until
  // Tell(nullptr).
  void Tell(Readiness* readiness);

  const std::vector<const ProvenBackend*>& backends() const { return proven_; }

 private:
  void OnFailed(const FailedProof& failed);
  void OnReference(const std::string& steps);
  // Returns the end of a log line that names the reference steps since the last
  // call; "" if there are none.
  std::string TakeReferenceSteps();

  std::vector<const ProvenBackend*> proven_;
  Mutex mutex_;
  bool is_running_ ABSL_GUARDED_BY(mutex_) = false;
  // As ProofListener::on_reference has them. Only Run collects them: later ones
  // come from clients' operations, and the metric counts them.
  std::set<std::string> reference_steps_ ABSL_GUARDED_BY(mutex_);
  bool has_failed_ ABSL_GUARDED_BY(mutex_) = false;
  Readiness* readiness_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace convgrad
