#include "backends/onednn/networks/network_parts.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "backends/core/status.h"
#include "backends/onednn/networks/network_recompute.h"
#include "backends/onednn/networks/schedule/network_dtypes.h"
#include "backends/onednn/networks/schedule/network_groups.h"
#include "backends/onednn/networks/schedule/network_guard.h"
#include "backends/onednn/networks/steps/network_steps.h"

namespace convgrad::onednn {
namespace {

// A schedule of the whole forward and, if there is one, of the backward.
struct WholeSchedule {
  Schedule schedule;
  ForwardAndBackward parts;
  // The results of convolutions by Winograd's algorithm.
  std::set<std::string> fast;

  // For each buffer, whether the caller wants it; the tape isn't included.
  std::vector<bool>& wanted() { return parts.is_result; }
};

struct NamedGroup {
  std::string result;
  std::unique_ptr<NetworkGroup> group;
};
using Groups = std::vector<NamedGroup>;

absl::StatusOr<Groups> AddGroups(Fusion fusion, NetworkBuilder* builder) {
  const Program& program = builder->operation().program();
  Groups groups;
  for (const GroupSteps& steps :
       FindGroups(program, builder->shapes(), fusion)) {
    NamedGroup& group = groups.emplace_back(
        NamedGroup{program.steps[steps.last()].result,
                   MakeGroup(program, builder->shapes(), steps)});
    builder->BeginForwardOf(group.result, DtypeOf(steps, *builder));
    group.group->Forward(builder);
    RETURN_IF_ERROR(builder->status());
  }
  return groups;
}

absl::Status AddForward(Fusion fusion, NetworkBuilder* builder) {
  RETURN_IF_ERROR(AddGroups(fusion, builder).status());
  builder->FetchValues();
  return absl::OkStatus();
}

// Returns a forward without a backward.
WholeSchedule ForwardOnly(Schedule schedule, std::vector<bool> wanted,
                          std::set<std::string> fast) {
  const size_t end = schedule.steps().size();
  return {
      std::move(schedule), {end, end, std::move(wanted), {}}, std::move(fast)};
}

// Returns the forward with more fused steps. If this fusion is correct only
// under a condition, unfused steps follow that run if the condition isn't met.
absl::StatusOr<WholeSchedule> BuildInference(const ProgramOperation& operation,
                                             const NetworkOptions& options) {
  NetworkBuilder fused(operation, options, false);
  RETURN_IF_ERROR(AddForward(Fusion::kOfInference, &fused));
  std::vector<bool> wanted = fused.Wanted();
  if (!fused.may_repeat()) {
    return ForwardOnly(fused.TakeSchedule(), std::move(wanted), fused.fast());
  }
  std::vector<BufferId> results = fused.fetched();
  for (const ProgramParameter& parameter : operation.program().parameters) {
    if (!fused.IsUpdated(parameter.name)) continue;
    if (ParameterDescriptor(parameter).dtype != DataType::kF32) continue;
    results.push_back(fused.Parameter(parameter.name));
  }
  for (const BufferId values : results) {
    fused.RepeatIf(AddFiniteCheck(DataType::kF32, values, &fused));
  }
  const BufferId flag = AddAnyOf(fused.repeats_if(), &fused);
  const size_t end = fused.steps().size();
  NetworkBuilder plain(operation, options, false, fused.TakeSchedule());
  RETURN_IF_ERROR(AddForward(Fusion::kOfTraining, &plain));
  plain.RunOnlyIf(flag, end);
  std::vector<bool> wanted_again = plain.Wanted();
  std::transform(wanted.begin(), wanted.end(), wanted_again.begin(),
                 wanted_again.begin(), std::logical_or<bool>());
  wanted_again[flag] = true;
  return ForwardOnly(plain.TakeSchedule(), std::move(wanted_again),
                     fused.fast());
}

absl::StatusOr<WholeSchedule> BuildSchedule(const ProgramOperation& operation,
                                            const NetworkOptions& options,
                                            bool everything) {
  const Fusion fusion = FusionOf(operation.request());
  if (fusion == Fusion::kOfInference) return BuildInference(operation, options);
  NetworkBuilder builder(operation, options, everything);
  ASSIGN_OR_RETURN(const Groups groups, AddGroups(fusion, &builder));
  ForwardAndBackward parts;
  parts.forward_end = builder.steps().size();
  builder.FetchValues();
  parts.backward_begin = builder.steps().size();
  if (builder.has_backward()) {
    builder.BeginBackward();
    for (size_t i = groups.size(); i-- > 0;) {
      if (!builder.HasGradient(groups[i].result)) continue;
      builder.BeginBackwardOf(groups[i].result);
      groups[i].group->Backward(&builder);
      RETURN_IF_ERROR(builder.status());
    }
    builder.EndBackward();
  }
  parts.is_result = builder.Wanted();
  parts.is_lasting = builder.LastingParameters();
  return WholeSchedule{builder.TakeSchedule(), std::move(parts),
                       builder.fast()};
}

// Returns, for each buffer, whether the forward writes it and some backward
// reads it.
std::vector<bool> FindTape(WholeSchedule everything) {
  const size_t backward_begin = everything.parts.backward_begin;
  std::vector<bool> is_written(everything.schedule.buffers().size());
  for (size_t i = 0; i < backward_begin; ++i) {
    for (const BufferId buffer : everything.schedule.steps()[i].writes) {
      is_written[buffer] = true;
    }
  }
  everything.schedule.KeepOnly(
      backward_begin, everything.schedule.steps().size(), everything.wanted());
  std::vector<bool> on_tape(everything.schedule.buffers().size());
  for (const Step& step : everything.schedule.steps()) {
    for (const BufferId buffer : step.reads) {
      const bool is_own =
          everything.schedule.buffers()[buffer].area == Area::kOwn;
      on_tape[buffer] = is_own && is_written[buffer];
    }
  }
  for (const Step& step : everything.schedule.steps()) {
    if (!step.is_again) continue;
    for (const BufferId buffer : step.writes) on_tape[buffer] = false;
  }
  return on_tape;
}

std::vector<FusedSteps> GroupsOf(const ProgramOperation& operation,
                                 const std::set<std::string>& fast) {
  std::vector<FusedSteps> groups;
  for (std::vector<std::string>& names :
       NamesOf(operation.program(),
               FindGroups(operation.program(), operation.shapes(),
                          FusionOf(operation.request())))) {
    const bool is_fast = std::any_of(
        names.begin(), names.end(),
        [&](const std::string& name) { return fast.contains(name); });
    groups.push_back({std::move(names), is_fast});
  }
  return groups;
}

// The decisions that a forward and its backward must share although they are
// planned separately.
struct Agreement {
  std::vector<bool> on_tape;
  std::vector<RepeatedSegment> repeated;
};

absl::StatusOr<Agreement> AgreeOnTape(const ProgramOperation& operation,
                                      const NetworkOptions& options) {
  ASSIGN_OR_RETURN(WholeSchedule everything,
                   BuildSchedule(operation, options, true));
  Agreement agreement;
  if (operation.request().recompute) {
    agreement.repeated =
        FindRepeatedSegments(everything.schedule, everything.parts);
    RepeatSegments(agreement.repeated, everything.parts.backward_begin,
                   &everything.schedule);
  }
  agreement.on_tape = FindTape(std::move(everything));
  return agreement;
}

}  // namespace

absl::StatusOr<NetworkParts> BuildNetworkParts(
    const ProgramOperation& operation, const NetworkOptions& options) {
  const ProgramPart part = operation.request().part;
  const bool writes_tape = part == ProgramPart::kForwardTape;
  const bool reads_tape = part == ProgramPart::kBackward;
  Agreement agreement;
  if (writes_tape || reads_tape) {
    ASSIGN_OR_RETURN(agreement, AgreeOnTape(operation, options));
  }
  ASSIGN_OR_RETURN(WholeSchedule whole,
                   BuildSchedule(operation, options, writes_tape));
  Schedule& schedule = whole.schedule;
  const size_t backward_begin = whole.parts.backward_begin;
  // The buffers of a forward have the same ids with each backward.
  std::vector<bool>& on_tape = agreement.on_tape;
  on_tape.resize(schedule.buffers().size());
  NetworkParts parts;
  parts.groups = GroupsOf(operation, whole.fast);
  PlacedSchedule& placed = parts.placed;
  if (writes_tape) {
    std::transform(on_tape.begin(), on_tape.end(), whole.wanted().begin(),
                   whole.wanted().begin(), std::logical_or<bool>());
    schedule.KeepOnly(0, backward_begin, whole.wanted());
    placed.tape = {0, Area::kResult, operation.ResultUses().size() - 1};
  } else {
    if (!reads_tape && operation.request().recompute) {
      agreement.repeated = FindRepeatedSegments(schedule, whole.parts);
    }
    RepeatSegments(agreement.repeated, backward_begin, &schedule);
    schedule.KeepOnly(reads_tape ? backward_begin : 0, schedule.steps().size(),
                      whole.wanted());
    if (reads_tape) placed.tape = {0, Area::kOperand, 0};
  }
  placed.memory = PlaceBuffers(schedule, on_tape);
  placed.prepared = FindPrepared(schedule, operation.weight_positions());
  placed.schedule = std::move(schedule);
  return parts;
}

}  // namespace convgrad::onednn
