// Memory of the server's that devices read and write directly.
#pragma once

#include <memory>

#include "backends/core/device.h"

namespace convgrad::cuda {

// Returns the pinner of all devices. What a device lost on the way can't be
// unpinned any more, and needn't.
std::shared_ptr<MemoryPinner> MakePinner();

}  // namespace convgrad::cuda
