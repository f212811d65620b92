// Times the engines that a graph may be computed by.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "backends/cuda/cuda_device.h"
#include "backends/cuda/cuda_graph.h"

namespace convgrad::cuda {

// Returns the least time that `engine` took in a few runs. Errors: an engine
// that fails isn't taken.
using EngineTimer =
    std::function<absl::StatusOr<absl::Duration>(const std::string& engine)>;

// Returns the fastest of `engines`, the heuristics' best first: it keeps its
// place unless another one is faster by more than timing is certain.
// Errors: kUnavailable if the device is lost meanwhile; the first error if all
// engines fail.
absl::StatusOr<std::string> FastestEngine(absl::Span<const std::string> engines,
                                          const EngineTimer& time);

// Returns the least time that the graph of `spec` took in a few runs on the
// device, in memory of its own. Errors: as ConvGraph::Make; kResourceExhausted,
// kUnavailable, kInternal.
absl::StatusOr<absl::Duration> TimeGraph(const GraphSpec& spec,
                                         const GraphTarget& target,
                                         Device* device);

// Times the heuristics' best engines for `spec` and returns the fastest.
// Errors: as FastestEngine; kResourceExhausted, kUnimplemented.
absl::StatusOr<std::string> TuneGraph(const GraphSpec& spec,
                                      const GraphTarget& target,
                                      Device* device);

}  // namespace convgrad::cuda
