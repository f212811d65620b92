// How long OpenMP's threads wait for more work before they sleep.
#pragma once

namespace convgrad {

// Has libgomp's threads give up their core soon after a loop, instead of
// turning on it for some ms: other workers, gRPC's threads and clients on the
// same machine need it. Starts the program again, with `arguments`, since
// libgomp reads its environment before main; returns if that was done, or if
// the environment names a policy (OMP_WAIT_POLICY, GOMP_SPINCOUNT).
// Requires: one thread.
void LimitOpenMpSpinning(char** arguments);

}  // namespace convgrad
