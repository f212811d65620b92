#include "backends/onednn/networks/network_plan.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <unordered_map>
#include <utility>

#include "absl/time/clock.h"
#include "backends/core/checked_math.h"
#include "backends/onednn/library/onednn_threads.h"
#include "backends/onednn/library/onednn_types.h"
#include "backends/onednn/networks/steps/network_steps.h"

namespace convgrad::onednn {
namespace {

bool Runs(const NetworkStep& step, const RunContext& context) {
  return step.only_if == kNoBuffer || *context.Read<int32_t>(step.only_if) != 0;
}

// What a step counts for: arithmetic, or else the bytes that it touches, of
// which memory moves some ten billion a second where the nominal machine does
// 25 billion multiply-adds.
double CostOf(const NetworkStep& step, const Schedule& schedule) {
  constexpr double kMacsPerByte = 2.5;
  double bytes = 0;
  for (const auto* used : {&step.reads, &step.writes}) {
    for (const BufferId buffer : *used) {
      bytes += static_cast<double>(schedule.buffers()[buffer].bytes);
    }
  }
  return std::max(step.macs, kMacsPerByte * bytes);
}

}  // namespace

NetworkPlan::NetworkPlan(const NetworkOptions& options, NetworkParts parts)
    : options_(options),
      schedule_(std::move(parts.schedule)),
      memory_(std::move(parts.memory)),
      prepared_(std::move(parts.prepared)),
      tape_(parts.tape),
      groups_(std::move(parts.groups)),
      text_bytes_(parts.text_bytes) {
  for (const NetworkStep& step : schedule_.steps()) {
    primitives_.push_back(step.function
                              ? dnnl::primitive()
                              : dnnl::primitive(step.primitive_desc.get()));
  }
  CutTurns();
}

void NetworkPlan::CutTurns() {
  double cost = 0;
  for (size_t i = 0; i < schedule_.steps().size(); ++i) {
    const double more = CostOf(schedule_.steps()[i], schedule_);
    if (cost > 0 && cost + more > options_.macs_per_turn) {
      turns_.push_back(i);
      cost = 0;
    }
    cost += more;
  }
  turns_.push_back(schedule_.steps().size());
}

void NetworkPlan::FillTapeGaps(std::byte* tape) const {
  for (size_t i = 0; i < schedule_.buffers().size(); ++i) {
    if (memory_.tape_offsets[i] == MemoryMap::kUnplaced) continue;
    const int64_t end = memory_.tape_offsets[i] + schedule_.buffers()[i].bytes;
    std::memset(tape + end, 0, RoundUpToLine(end) - end);
  }
}

int64_t NetworkPlan::resident_bytes() const {
  // As onednn_program.cc has it: a primitive with its generated code.
  constexpr int64_t kPrimitiveBytes = 64 << 10;
  // A cache has the text in its list and in its map.
  int64_t bytes =
      static_cast<int64_t>(schedule_.steps().size()) * kPrimitiveBytes +
      2 * text_bytes_;
  for (const NetworkStep& step : schedule_.steps()) {
    // A step that runs again shares its table with the first time.
    if (!step.is_again) bytes += step.table_bytes;
  }
  return bytes;
}

std::vector<std::byte*> NetworkPlan::AddressesIn(
    const RunBuffers& buffers) const {
  std::byte* tape = nullptr;
  if (tape_.area == Area::kResult) {
    tape = static_cast<std::byte*>(buffers.results[tape_.index]);
  } else if (tape_.area == Area::kOperand) {
    // Steps of a backward only read what is on the tape.
    tape = static_cast<std::byte*>(
        const_cast<void*>(buffers.operands[tape_.index]));
  }
  std::vector<std::byte*> addresses;
  for (size_t i = 0; i < schedule_.buffers().size(); ++i) {
    const NetworkBuffer& buffer = schedule_.buffers()[i];
    void* address = nullptr;
    if (buffer.area == Area::kOperand) {
      if (buffer.index < buffers.operands.size()) {
        address = const_cast<void*>(buffers.operands[buffer.index]);
      }
    } else if (buffer.area == Area::kResult) {
      address = buffers.results[buffer.index];
    } else if (memory_.tape_offsets[i] != MemoryMap::kUnplaced) {
      address = tape + memory_.tape_offsets[i];
    } else if (!buffers.prepared_weight.empty() &&
               prepared_.offsets[i] != PreparedParts::kNotKept) {
      address = buffers.prepared_weight.data() + prepared_.offsets[i];
    } else if (memory_.scratch_offsets[i] != MemoryMap::kUnplaced) {
      address = buffers.scratch.data() + memory_.scratch_offsets[i];
    }
    addresses.push_back(static_cast<std::byte*>(address));
  }
  return addresses;
}

absl::StatusOr<RunTimes> NetworkPlan::RunSteps(const RunBuffers& buffers,
                                               size_t begin, size_t end) const {
  UseThreads(options_.threads);
  const std::vector<std::byte*> addresses = AddressesIn(buffers);
  const RunContext context(addresses, options_.threads);
  if (begin == 0 && tape_.area == Area::kResult) {
    FillTapeGaps(static_cast<std::byte*>(buffers.results[tape_.index]));
  }
  RunTimes times;
  absl::Status status;
  RETURN_IF_ERROR(Guard("execution", [&] {
    dnnl::stream stream(CpuEngine());
    absl::Time before = absl::Now();
    for (size_t i = begin; i < end; ++i) {
      const NetworkStep& step = schedule_.steps()[i];
      if (buffers.weight_is_prepared && prepared_.prepares[i]) continue;
      if (!Runs(step, context)) continue;
      if (step.check) status = step.check(context);
      if (!status.ok()) return;
      if (step.function) {
        step.function(context);
      } else {
        std::unordered_map<int, dnnl::memory> arguments;
        for (const NetworkStep::Argument& argument : step.arguments) {
          arguments.emplace(argument.arg,
                            dnnl::memory(argument.desc, CpuEngine(),
                                         context.At(argument.buffer)));
        }
        primitives_[i].execute(stream, arguments);
      }
      const absl::Time after = absl::Now();
      if (IsLayoutKind(step.kind)) {
        times.reorder += after - before;
      } else {
        times.compute += after - before;
        times.steps[step.kind] += after - before;
      }
      before = after;
    }
    stream.wait();
  }));
  RETURN_IF_ERROR(status);
  return times;
}

absl::StatusOr<RunTimes> NetworkPlan::Run(const RunBuffers& buffers) const {
  return RunSteps(buffers, 0, schedule_.steps().size());
}

absl::StatusOr<RunTimes> NetworkPlan::RunTurn(const RunBuffers& buffers,
                                              int turn) const {
  return RunSteps(buffers, turns_[turn], turns_[turn + 1]);
}

int64_t NetworkTableBytes(const ProgramOperation& operation) {
  const bool has_backward = operation.request().part != ProgramPart::kForward;
  int64_t bytes = 0;
  for (const ProgramStep& step : operation.program().steps) {
    const auto table_bytes = NetworkOperatorOf(step.op).table_bytes;
    if (table_bytes == nullptr) continue;
    bytes = SaturatingAdd(bytes,
                          table_bytes(step, operation.shapes(), has_backward));
  }
  return bytes;
}

absl::StatusOr<std::unique_ptr<NetworkPlan>> MakeNetworkPlan(
    const ProgramOperation& operation, const NetworkOptions& options) {
  UseThreads(options.threads);
  std::unique_ptr<NetworkPlan> plan;
  absl::Status status;
  RETURN_IF_ERROR(Guard("planning", [&] {
    absl::StatusOr<NetworkParts> parts = BuildNetworkParts(operation, options);
    status = parts.status();
    if (!status.ok()) return;
    parts->text_bytes = static_cast<int64_t>(operation.text().size());
    plan = std::make_unique<NetworkPlan>(options, *std::move(parts));
  }));
  RETURN_IF_ERROR(status);
  return plan;
}

}  // namespace convgrad::onednn
