// `RandomProblem` makes valid random problems of every kind.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "backends/core/convolution/conv_problem.h"

namespace convgrad::testing_support {

// Returns a valid problem of rank 0 to 3, transposed or not, with any groups,
// strides, dilations, pads, output padding, bias shape, residual and ReLU.
// The same generator state gives the same problem.
ConvProblem RandomProblem(std::mt19937* random);

// Returns `count` problem strings of at most `max_macs` multiply-adds, all
// different.
std::vector<std::string> RandomProblems(int count, uint32_t seed,
                                        int64_t max_macs);

}  // namespace convgrad::testing_support
