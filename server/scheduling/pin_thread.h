// `PinThisThread` chooses the cores that a thread runs on.
#pragma once

#include <vector>

namespace convgrad {

// Pins the calling thread, and threads that it starts later, to `cores`; to no
// core if that is empty. Thread-safe.
void PinThisThread(const std::vector<int>& cores);

}  // namespace convgrad
