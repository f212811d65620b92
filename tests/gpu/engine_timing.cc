#include "tests/gpu/engine_timing.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "backends/core/status.h"

namespace convgrad {
namespace {

using cuda::AllocateDevice;
using cuda::ConvGraph;
using cuda::CreateEvent;
using cuda::CreateStream;
using cuda::Device;
using cuda::DeviceBuffer;
using cuda::DeviceCalls;
using cuda::Event;
using cuda::GraphBuffers;
using cuda::GraphSpec;
using cuda::GraphTarget;
using cuda::Stream;

constexpr int kMostEngines = 8;
constexpr int kRuns = 5;  // After one that warms up.

// The memory of a graph's engines. Its contents are undefined, because they
// don't change times.
struct GraphMemory {
  DeviceBuffer data, weight, out, bias;
};

// Allocates the memory of a tensor of any dtype and role.
absl::StatusOr<DeviceBuffer> AllocateFor(const ConvProblem& problem, Role role,
                                         Device* device) {
  return AllocateDevice(device, *ByteSize({DataType::kF32, Layout::kNCX,
                                           cuda::DimsFor(problem, role)}));
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

}  // namespace

absl::StatusOr<absl::Duration> TimeFastestEngine(GraphSpec spec,
                                                 const GraphTarget& target,
                                                 Device* device) {
  ASSIGN_OR_RETURN(
      const std::vector<std::string> engines,
      ConvGraph::ListEngines(spec, target, {kMostEngines, kMostEngines}));
  absl::Duration least = absl::InfiniteDuration();
  absl::Status failure = absl::UnimplementedError("no engine");
  for (const std::string& engine : engines) {
    spec.engine = engine;
    const auto took = TimeGraph(spec, target, device);
    if (absl::IsUnavailable(took.status())) return took.status();
    if (took.ok()) {
      least = std::min(least, *took);
    } else {
      failure = took.status();
    }
  }
  if (least == absl::InfiniteDuration()) return failure;
  return least;
}

}  // namespace convgrad
