// Valid operations of every kind that nobody thought of.
#pragma once

#include <cstdint>
#include <random>

#include "backends/core/convolution/conv_operation.h"

namespace convgrad::testing_support {

// Returns a valid operation on a random problem of at most `max_macs`
// multiply-adds: either direction, any gradients in any order, any dtypes,
// layouts and scales that may meet, one layout for each tensor, any c0, any
// bias shape. The same generator state gives the same operation.
ConvOperation RandomOperation(int64_t max_macs, std::mt19937* random);

}  // namespace convgrad::testing_support
