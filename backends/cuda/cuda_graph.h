// One pass of an ordinary convolution as a cuDNN graph: the only place that
// knows cudnn-frontend, whose headers take half a minute to compile.
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

// What graphs are planned for: a device that is here, or the description of
// one that isn't, whose plans can be made but not run. Owned by one thread at
// a time.
class GraphTarget {
 public:
  // Errors: kFailedPrecondition if cuDNN 9 isn't installed or finds no device.
  static absl::StatusOr<GraphTarget> OfCurrentDevice();

  // `description` is cuDNN's own JSON of a device's properties.
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
  // Ordinary, 1 to 3 axes; one axis runs as two, the first of extent 1.
  ConvProblem problem;
  DataType operands = DataType::kF32;
  DataType result = DataType::kF32;
  Format format = Format::kNXC;
  // Forward only: adds an f32 number per channel of the output before the
  // rounding.
  bool bias = false;
  // Engines that need more workspace are left out.
  int64_t max_workspace_bytes = 0;
  // cuDNN's name of the engine to take, if it is one that may be taken. Else,
  // and if empty: the one that cuDNN's heuristics put first.
  std::string engine;
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
  // Picks an engine among those that are deterministic and only multiply and
  // add in f32: no TF32, no Winograd, no FFT, no sums in 16 bits.
  // Errors: kUnimplemented if there is none, naming cuDNN's reason.
  static absl::StatusOr<std::unique_ptr<ConvGraph>> Make(
      const GraphSpec& spec, const GraphTarget& target);

  // Returns the names of at most `count` such engines, in the heuristics'
  // order. Slow: it makes them all. Errors: as Make.
  static absl::StatusOr<std::vector<std::string>> ListEngines(
      const GraphSpec& spec, const GraphTarget& target, int count);

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
