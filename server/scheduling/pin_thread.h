// `PinThisThread` sets the cores that a thread may run on.
#pragma once

#include <vector>

namespace convgrad {

// Pins the calling thread, and threads that it starts later, to `cores`. Does
// nothing if `cores` is empty. Thread-safe.
void PinThisThread(const std::vector<int>& cores);

}  // namespace convgrad
