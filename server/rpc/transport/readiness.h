// What grpc.health.v1 says, by the name of the service that is asked about.
#pragma once

#include "backends/core/mutex.h"
#include "server/rpc/transport/listeners.h"

namespace convgrad {

// How well a listening socket accepts connections. kLost: it has been deaf for
// so long, with descriptors to spare, that only a new process will help.
enum class Hearing { kGood, kDeaf, kLost };

// "liveness" serves as long as the process does and no listener is lost,
// "startup" once it has been ready, "devices" until one is lost, "proof" until
// something is found to be computed wrongly, "readiness" and the services
// themselves ("" too) while calls should come. Thread-safe.
class Readiness {
 public:
  // Alive, not ready. `listeners` outlives it.
  explicit Readiness(Listeners* listeners);

  // Unless it drains already.
  void SetReady();
  void StartDraining();
  // How the worst of the listeners hears.
  void OnHearing(Hearing worst);
  // For good, as devices don't come back. `can_serve`: others are left.
  void OnDeviceLost(bool can_serve);
  // For good, too: what is left is right, but this machine wants a look.
  void OnProofFailed();

 private:
  void Tell() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Listeners* const listeners_;
  Mutex mutex_;
  bool ready_ ABSL_GUARDED_BY(mutex_) = false;
  Hearing hearing_ ABSL_GUARDED_BY(mutex_) = Hearing::kGood;
  bool refusing_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace convgrad
