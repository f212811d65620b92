// `RandomOperation` makes valid random operations of every kind.
#pragma once

#include <cstdint>
#include <random>

#include "backends/core/convolution/conv_operation.h"

namespace convgrad::testing_support {

// Returns a valid operation on a random problem of at most `max_macs`
// multiply-adds: either direction, any gradients in any order, any valid
// combination of dtypes, layouts and scales, one layout for each tensor, any
// c0, any bias shape. The same generator state gives the same operation.
ConvOperation RandomOperation(int64_t max_macs, std::mt19937* random);

}  // namespace convgrad::testing_support
