// `LimitOpenMpSpinning` limits how long OpenMP's threads spin before they
// sleep.
#pragma once

namespace convgrad {

// Makes libgomp's threads sleep some 50 us after a loop instead of spinning for
// milliseconds. gRPC's threads, other workers and clients on the same machine
// need the cores. Executes the program again with `arguments`, because libgomp
// reads its environment before main. Returns if that was done before, or if the
// environment has OMP_WAIT_POLICY or GOMP_SPINCOUNT. Requires: one thread.
void LimitOpenMpSpinning(char** arguments);

}  // namespace convgrad
