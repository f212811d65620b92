// What grpc.health.v1 says, by the name of the service that is asked about.
#pragma once

#include "backends/core/mutex.h"
#include "server/rpc/listeners.h"

namespace convgrad {

// "liveness" serves as long as the process does, "startup" once it has been
// ready, "devices" until one is lost, "proof" until something is found to be
// computed wrongly, "readiness" and the services themselves ("" too) while
// calls should come. Thread-safe.
class Readiness {
 public:
  // Alive, not ready. `listeners` outlives it.
  explicit Readiness(Listeners* listeners);

  // Unless it drains already.
  void SetReady();
  void StartDraining();
  // For good, as devices don't come back. `can_serve`: others are left.
  void OnDeviceLost(bool can_serve);
  // For good, too: what is left is right, but this machine wants a look.
  void OnProofFailed();

 private:
  void SetServing(bool serving) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Listeners* const listeners_;
  Mutex mutex_;
  bool refusing_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace convgrad
