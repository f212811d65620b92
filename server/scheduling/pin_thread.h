// Which cores a thread runs on.
#pragma once

#include <vector>

namespace convgrad {

// Has this thread, and those that it starts from now on, run on `cores` only;
// on any if that is empty.
void PinThisThread(const std::vector<int>& cores);

}  // namespace convgrad
