// `Readiness` decides the answer of grpc.health.v1 for each service name.
#pragma once

#include "backends/core/mutex.h"
#include "server/rpc/transport/listeners.h"

namespace convgrad {

// Service names: "liveness" serves until the acceptor is lost, "startup" once
// the server has been ready, "devices" until a device is lost, and "proof"
// until a proof fails. "readiness", "" and the services themselves serve while
// clients should send calls. Thread-safe.
class Readiness {
 public:
  // Starts alive but not ready. `listeners` outlives it.
  explicit Readiness(Listeners* listeners);

  // Sets the server ready, unless it is draining.
  void SetReady();
  void StartDraining();
  // Asks whether clients can connect. Call it twice a second.
  void Listen();
  // Reports a lost device. The state is permanent, because devices don't come
  // back. `can_serve`: other devices are left.
  void OnDeviceLost(bool can_serve);
  // Reports a failed proof. The state is permanent: the server still computes
  // correctly, but the operator should check this machine.
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
