// `MakePinner` makes the pinner with which devices access the server's memory
// directly.
#pragma once

#include <memory>

#include "backends/core/device.h"

namespace convgrad::cuda {

// Returns the pinner for all devices. Memory pinned for a lost device can't be
// unpinned and needn't be.
std::shared_ptr<MemoryPinner> MakePinner();

}  // namespace convgrad::cuda
