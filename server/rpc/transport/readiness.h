// `Readiness` decides what grpc.health.v1 answers for each service name.
#pragma once

#include "backends/core/mutex.h"
#include "server/rpc/transport/listeners.h"

namespace convgrad {

// How well a listening socket accepts connections. kLost: it has accepted
// nothing for so long, although descriptors are free, that only a new process
// helps.
enum class Hearing { kGood, kDeaf, kLost };

// "liveness" serves until a listener is lost, "startup" once the server has
// been ready, "devices" until a device is lost, and "proof" until a proof
// fails. "readiness", "" and the services themselves serve while clients should
// send calls. Thread-safe.
class Readiness {
 public:
  // Starts alive and not ready. `listeners` outlives it.
  explicit Readiness(Listeners* listeners);

  // Sets the server ready, unless it drains already.
  void SetReady();
  void StartDraining();
  // Reports the state of the worst listener.
  void OnHearing(Hearing worst);
  // Reports a lost device, for good, because devices don't come back.
  // `can_serve`: other devices are left.
  void OnDeviceLost(bool can_serve);
  // Reports a failed proof, for good: the server still computes correctly, but
  // the operator should check this machine.
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
