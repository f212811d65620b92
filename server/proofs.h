// `Proofs` runs the proofs of backends at the start and reports their failures.
#pragma once

#include <functional>
#include <vector>

#include "backends/registry.h"
#include "server/rpc/transport/readiness.h"
#include "server/telemetry/observer.h"

namespace convgrad {

// Tells log, health and metrics of what backends compute wrongly here.
// Thread-safe.
class Proofs {
 public:
  // Has those of `*backends` prove themselves that need it. Outlives them.
  explicit Proofs(std::vector<RegisteredBackend>* backends);

  // Whether there is anything to prove.
  bool empty() const { return proven_.empty(); }

  // Proves every family of operations for teams of `threads` on this thread,
  // unless `give_up` says otherwise.
  void Run(int threads, const std::function<bool()>& give_up) const;

  // Has `readiness` hear of failures, those before included, until null is
  // given.
  void Tell(Readiness* readiness);

  std::vector<ProofGauges> gauges() const;

  const std::vector<const ProvenBackend*>& backends() const { return proven_; }

 private:
  void OnFailed(const FailedProof& failed);

  std::vector<const ProvenBackend*> proven_;
  Mutex mutex_;
  bool has_failed_ ABSL_GUARDED_BY(mutex_) = false;
  Readiness* readiness_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace convgrad
