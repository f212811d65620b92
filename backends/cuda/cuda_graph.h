// `ConvGraph` is one pass of an ordinary convolution as a cuDNN graph. Only
// this file's source uses cudnn-frontend, whose headers take half a minute to
// compile.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "backends/core/convolution/lowering.h"
#include "backends/cuda/cuda_graph_shapes.h"

struct CUstream_st;

namespace convgrad::cuda {

// The device for which graphs are planned: a present device, or the description
// of an absent one, whose plans can't run. Owned by one thread at a time.
class GraphTarget {
 public:
  // Returns the calling thread's current device.
  // Errors: kFailedPrecondition if cuDNN 9 isn't installed or finds no device.
  static absl::StatusOr<GraphTarget> OfCurrentDevice();

  // Returns the target that `description`, cuDNN's JSON of a device's
  // properties, describes.
  // Errors: kFailedPrecondition without cuDNN 9; kInvalidArgument.
  static absl::StatusOr<GraphTarget> OfDescription(
      absl::string_view description);

  GraphTarget(GraphTarget&&) noexcept;
  GraphTarget& operator=(GraphTarget&&) noexcept;
  ~GraphTarget();

  // Returns cuDNN's version, e.g. "9.19.0".
  std::string version() const;

 private:
  friend class ConvGraph;
  struct Impl;
  explicit GraphTarget(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

struct GraphSpec {
  Pass pass = Pass::kForward;
  // Ordinary, with 1 to 3 axes. One axis runs as two, the first with extent 1.
  ConvProblem problem;
  DataType operands = DataType::kF32;
  DataType result = DataType::kF32;
  Format format = Format::kNXC;
  // Only for a forward pass: adds an f32 number per output channel before
  // rounding.
  bool bias = false;
  // Excludes engines that need more workspace.
  int64_t max_workspace_bytes = int64_t{1} << 30;
  // cuDNN's name of the engine to use, if it is allowed. Otherwise, or if
  // empty: the first engine of cuDNN's heuristics.
  std::string engine = {};
  // Allows the engines that ForbiddenEngines names. Only for tests of them.
  bool allows_forbidden = false;
};

// Device pointers of one execution.
struct GraphBuffers {
  void* data = nullptr;
  void* weight = nullptr;
  void* out = nullptr;
  void* bias = nullptr;
  void* workspace = nullptr;
};

// Immutable.
class ConvGraph {
 public:
  // Chooses an engine that is deterministic and only multiplies and adds in
  // f32: no TF32, no Winograd, no FFT, no 16-bit sums.
  // Errors: kUnimplemented with cuDNN's reason if there is none.
  static absl::StatusOr<std::unique_ptr<ConvGraph>> Make(
      const GraphSpec& spec, const GraphTarget& target);

  // Limits of ListEngines.
  struct EngineCounts {
    int all = 0;
    // Limit for the engines that differ only in their knobs.
    int of_one_number = 0;
  };
  // Returns the names of allowed engines, in the order of the heuristics. Slow,
  // because it makes them. Errors: as Make.
  static absl::StatusOr<std::vector<std::string>> ListEngines(
      const GraphSpec& spec, const GraphTarget& target,
      const EngineCounts& most);

  ~ConvGraph();

  int64_t workspace_bytes() const;
  // Returns cuDNN's name of the engine.
  const std::string& engine() const;

  // Enqueues the pass. Requires: a target with a device.
  // Errors: kInternal.
  absl::Status Run(const GraphTarget& target, CUstream_st* stream,
                   const GraphBuffers& buffers) const;

 private:
  struct Impl;
  explicit ConvGraph(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace convgrad::cuda
