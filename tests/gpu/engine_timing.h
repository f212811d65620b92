// `TimeFastestEngine` times the engines that may compute a graph.
#pragma once

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "backends/cuda/cuda_graph.h"
#include "backends/cuda/device/cuda_device.h"

namespace convgrad {

// Times the first 8 engines of cuDNN's heuristics for `spec`, each a few times
// in its own memory, and returns the least time of all runs.
// Errors: kUnavailable if the device is lost; otherwise the error of the last
// engine if every engine fails.
absl::StatusOr<absl::Duration> TimeFastestEngine(
    cuda::GraphSpec spec, const cuda::GraphTarget& target,
    cuda::Device* device);

}  // namespace convgrad
