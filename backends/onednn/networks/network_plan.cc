#include "backends/onednn/networks/network_plan.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <unordered_map>
#include <utility>

#include "absl/time/clock.h"
#include "backends/onednn/networks/network_groups.h"
#include "backends/onednn/networks/network_guard.h"
#include "backends/onednn/onednn_threads.h"
#include "backends/onednn/onednn_types.h"

namespace convgrad::onednn {
namespace {

// A schedule of the whole forward and, if there is one, the backward.
struct WholeSchedule {
  Schedule schedule;
  size_t backward_begin;
  std::vector<bool> wanted;
};

using Groups = std::vector<std::unique_ptr<NetworkGroup>>;

absl::StatusOr<Groups> AddForward(Fusion fusion, NetworkBuilder* builder) {
  const Program& program = builder->operation().program();
  Groups groups;
  for (const GroupSteps& steps :
       FindGroups(program, builder->shapes(), fusion)) {
    groups.push_back(MakeGroup(program, builder->shapes(), steps));
  }
  for (const auto& group : groups) RETURN_IF_ERROR(group->Forward(builder));
  builder->FetchValues();
  return groups;
}

// Returns the forward with more steps fused, and, where that has a condition,
// behind it the steps that do it again without where the condition isn't met.
absl::StatusOr<WholeSchedule> BuildInference(const ProgramOperation& operation,
                                             const NetworkOptions& options) {
  NetworkBuilder fused(operation, options, false);
  RETURN_IF_ERROR(AddForward(Fusion::kOfInference, &fused).status());
  std::vector<bool> wanted = fused.Wanted();
  if (!fused.may_repeat()) {
    const size_t end = fused.schedule().steps().size();
    return WholeSchedule{std::move(fused.schedule()), end, std::move(wanted)};
  }
  for (const BufferId values : fused.fetched()) {
    fused.RepeatIf(AddFiniteCheck(values, &fused.schedule()));
  }
  const BufferId flag = AddAnyOf(fused.repeats_if(), &fused.schedule());
  const size_t end = fused.schedule().steps().size();
  NetworkBuilder plain(operation, options, false, std::move(fused.schedule()));
  RETURN_IF_ERROR(AddForward(Fusion::kOfTraining, &plain).status());
  plain.schedule().RunOnlyIf(flag, end);
  std::vector<bool> wanted_again = plain.Wanted();
  std::transform(wanted.begin(), wanted.end(), wanted_again.begin(),
                 wanted_again.begin(), std::logical_or<bool>());
  wanted_again[flag] = true;
  const size_t plain_end = plain.schedule().steps().size();
  return WholeSchedule{std::move(plain.schedule()), plain_end,
                       std::move(wanted_again)};
}

absl::StatusOr<WholeSchedule> BuildSchedule(const ProgramOperation& operation,
                                            const NetworkOptions& options,
                                            bool everything) {
  if (FusionOf(operation.request()) == Fusion::kOfInference) {
    return BuildInference(operation, options);
  }
  NetworkBuilder builder(operation, options, everything);
  ASSIGN_OR_RETURN(const Groups groups,
                   AddForward(Fusion::kOfTraining, &builder));
  const size_t backward_begin = builder.schedule().steps().size();
  if (builder.has_backward()) {
    builder.BeginBackward();
    for (size_t i = groups.size(); i-- > 0;) {
      RETURN_IF_ERROR(groups[i]->Backward(&builder));
    }
    builder.EndBackward();
  }
  std::vector<bool> wanted = builder.Wanted();
  return WholeSchedule{std::move(builder.schedule()), backward_begin,
                       std::move(wanted)};
}

// Returns which buffers the forward writes and some backward reads.
std::vector<bool> FindTape(WholeSchedule everything) {
  std::vector<bool> is_written(everything.schedule.buffers().size());
  for (size_t i = 0; i < everything.backward_begin; ++i) {
    for (const BufferId buffer : everything.schedule.steps()[i].writes) {
      is_written[buffer] = true;
    }
  }
  everything.schedule.KeepOnly(everything.backward_begin,
                               everything.schedule.steps().size(),
                               everything.wanted);
  std::vector<bool> on_tape(everything.schedule.buffers().size());
  for (const NetworkStep& step : everything.schedule.steps()) {
    for (const BufferId buffer : step.reads) {
      const bool is_own =
          everything.schedule.buffers()[buffer].area == Area::kOwn;
      on_tape[buffer] = is_own && is_written[buffer];
    }
  }
  return on_tape;
}

// What a plan is made of.
struct Parts {
  Schedule schedule;
  MemoryMap memory;
  PreparedParts prepared;
  NetworkBuffer tape;
};

absl::StatusOr<Parts> BuildParts(const ProgramOperation& operation,
                                 const NetworkOptions& options) {
  const ProgramPart part = operation.request().part;
  const bool has_tape =
      part == ProgramPart::kForwardTape || part == ProgramPart::kBackward;
  std::vector<bool> on_tape;
  if (has_tape) {
    ASSIGN_OR_RETURN(WholeSchedule everything,
                     BuildSchedule(operation, options, true));
    on_tape = FindTape(std::move(everything));
  }
  ASSIGN_OR_RETURN(
      WholeSchedule whole,
      BuildSchedule(operation, options, part == ProgramPart::kForwardTape));
  // Buffers of a forward have the same numbers, whatever backward follows.
  on_tape.resize(whole.schedule.buffers().size());
  size_t begin = 0, end = whole.schedule.steps().size();
  if (part == ProgramPart::kForwardTape) {
    end = whole.backward_begin;
    std::transform(on_tape.begin(), on_tape.end(), whole.wanted.begin(),
                   whole.wanted.begin(), std::logical_or<bool>());
  }
  if (part == ProgramPart::kBackward) begin = whole.backward_begin;
  whole.schedule.KeepOnly(begin, end, whole.wanted);
  Parts parts = {std::move(whole.schedule), {}, {}, {}};
  parts.memory = PlaceBuffers(parts.schedule, on_tape);
  parts.prepared = FindPrepared(parts.schedule, operation.weight_positions());
  if (part == ProgramPart::kForwardTape) {
    parts.tape = {0, Area::kResult, operation.ResultUses().size() - 1};
  } else if (part == ProgramPart::kBackward) {
    parts.tape = {0, Area::kOperand, 0};
  }
  return parts;
}

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

NetworkPlan::NetworkPlan(const NetworkOptions& options, Schedule schedule,
                         MemoryMap memory, PreparedParts prepared,
                         const NetworkBuffer& tape)
    : options_(options),
      schedule_(std::move(schedule)),
      memory_(std::move(memory)),
      prepared_(std::move(prepared)),
      tape_(tape) {
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
  return static_cast<int64_t>(schedule_.steps().size()) * kPrimitiveBytes;
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

absl::StatusOr<std::unique_ptr<NetworkPlan>> MakeNetworkPlan(
    const ProgramOperation& operation, const NetworkOptions& options) {
  UseThreads(options.threads);
  std::unique_ptr<NetworkPlan> plan;
  absl::Status status;
  RETURN_IF_ERROR(Guard("planning", [&] {
    absl::StatusOr<Parts> parts = BuildParts(operation, options);
    status = parts.status();
    if (!status.ok()) return;
    plan = std::make_unique<NetworkPlan>(
        options, std::move(parts->schedule), std::move(parts->memory),
        std::move(parts->prepared), parts->tape);
  }));
  RETURN_IF_ERROR(status);
  return plan;
}

}  // namespace convgrad::onednn
