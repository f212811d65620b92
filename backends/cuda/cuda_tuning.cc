#include "backends/cuda/cuda_tuning.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "backends/core/status.h"

namespace convgrad::cuda {
namespace {

constexpr int kMostEngines = 8;
constexpr int kRuns = 5;  // after one that warms up
// Within this share two engines are as fast as each other.
constexpr double kNoise = 0.02;

// What a graph's engines work on; of undefined contents, which don't change
// times.
struct GraphMemory {
  DeviceBuffer data, weight, out, bias;
};

// For any dtype, whichever role has which.
absl::StatusOr<DeviceBuffer> AllocateFor(const ConvProblem& problem, Role role,
                                         Device* device) {
  return AllocateDevice(device, *ByteSize({DataType::kF32, Layout::kNCX,
                                           DimsFor(problem, role)}));
}

absl::StatusOr<GraphMemory> Allocate(const ConvProblem& problem,
                                     Device* device) {
  GraphMemory memory;
  ASSIGN_OR_RETURN(memory.data, AllocateFor(problem, Role::kData, device));
  ASSIGN_OR_RETURN(memory.weight, AllocateFor(problem, Role::kWeight, device));
  ASSIGN_OR_RETURN(memory.out, AllocateFor(problem, Role::kOut, device));
  ASSIGN_OR_RETURN(memory.bias,
                   AllocateDevice(device, problem.out_channels *
                                              ByteSizeOf(DataType::kF32)));
  return memory;
}

absl::StatusOr<absl::Duration> TimeRuns(const ConvGraph& graph,
                                        const GraphTarget& target,
                                        const GraphBuffers& buffers,
                                        Device* device) {
  ASSIGN_OR_RETURN(const Stream stream, CreateStream(device));
  ASSIGN_OR_RETURN(const Event begin, CreateEvent(device, true));
  ASSIGN_OR_RETURN(const Event end, CreateEvent(device, true));
  DeviceCalls& calls = device->calls();
  const auto check = [&](cudaError_t error) {
    return device->Check(error, "timing");
  };
  absl::Duration best = absl::InfiniteDuration();
  for (int run = 0; run <= kRuns; ++run) {
    RETURN_IF_ERROR(check(calls.Record(begin.get(), stream.get())));
    RETURN_IF_ERROR(graph.Run(target, stream.get(), buffers));
    RETURN_IF_ERROR(check(calls.Record(end.get(), stream.get())));
    RETURN_IF_ERROR(check(calls.Synchronize(end.get())));
    float milliseconds = 0;
    RETURN_IF_ERROR(
        check(calls.Elapsed(&milliseconds, begin.get(), end.get())));
    if (run == 0) continue;
    best =
        std::min(best, absl::Milliseconds(static_cast<double>(milliseconds)));
  }
  return best;
}

}  // namespace

absl::StatusOr<std::string> FastestEngine(absl::Span<const std::string> engines,
                                          const EngineTimer& time) {
  std::string fastest;
  absl::Duration least = absl::InfiniteDuration();
  absl::Status failure = MakeError(
      absl::StatusCode::kUnimplemented,
      {Reason::kUnsupported, "cuDNN engines", "none", "at least one"});
  for (const std::string& engine : engines) {
    const absl::StatusOr<absl::Duration> took = time(engine);
    if (absl::IsUnavailable(took.status())) return took.status();
    if (!took.ok()) {
      if (fastest.empty()) failure = took.status();
    } else if (fastest.empty() || *took < least * (1 - kNoise)) {
      fastest = engine;
      least = *took;
    }
  }
  if (fastest.empty()) return failure;
  return fastest;
}

absl::StatusOr<absl::Duration> TimeGraph(const GraphSpec& spec,
                                         const GraphTarget& target,
                                         Device* device) {
  ASSIGN_OR_RETURN(const GraphMemory memory, Allocate(spec.problem, device));
  ASSIGN_OR_RETURN(const std::unique_ptr<ConvGraph> graph,
                   ConvGraph::Make(spec, target));
  ASSIGN_OR_RETURN(const DeviceBuffer workspace,
                   AllocateDevice(device, graph->workspace_bytes()));
  return TimeRuns(*graph, target,
                  {memory.data.get(), memory.weight.get(), memory.out.get(),
                   spec.bias ? memory.bias.get() : nullptr, workspace.get()},
                  device);
}

absl::StatusOr<std::string> TuneGraph(const GraphSpec& spec,
                                      const GraphTarget& target,
                                      Device* device) {
  ASSIGN_OR_RETURN(const std::vector<std::string> engines,
                   ConvGraph::ListEngines(spec, target, kMostEngines));
  return FastestEngine(engines, [&](const std::string& engine) {
    GraphSpec with_engine = spec;
    with_engine.engine = engine;
    return TimeGraph(with_engine, target, device);
  });
}

}  // namespace convgrad::cuda
