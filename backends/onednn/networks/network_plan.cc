#include "backends/onednn/networks/network_plan.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "backends/core/checked_math.h"
#include "backends/onednn/library/onednn_threads.h"
#include "backends/onednn/library/onednn_types.h"
#include "backends/onednn/networks/steps/network_steps.h"

namespace convgrad::onednn {
namespace {

// Returns the step's cost in multiply-adds: its arithmetic or, if it has none,
// its memory accesses. While the nominal machine does 25 billion multiply-adds,
// its memory moves about 10 billion bytes.
double CostOf(const Step& step, const Schedule& schedule) {
  constexpr double kMacsPerByte = 2.5;
  double bytes = 0;
  for (const auto* used : {&step.reads, &step.writes}) {
    for (const BufferId buffer : *used) {
      bytes += static_cast<double>(schedule.buffers()[buffer].bytes);
    }
  }
  return std::max(step.macs, kMacsPerByte * bytes);
}

// Returns whether the library computes steps of this operator.
bool IsProduct(Operator op) {
  switch (op) {
    case Operator::kConv:
    case Operator::kConvTranspose:
    case Operator::kLinear:
    case Operator::kMatmul:
    case Operator::kAttention:
      return true;
    default:
      return false;
  }
}

// Returns how often the plan has steps for a step of the program: a backward
// has two products for each product of the forward.
int64_t PassesOf(ProgramPart part) {
  switch (part) {
    case ProgramPart::kBackward:
      return 2;
    case ProgramPart::kTrain:
      return 3;
    default:
      return 1;
  }
}

}  // namespace

NetworkPlan::NetworkPlan(const NetworkOptions& options, NetworkParts parts)
    : ScheduledPlan(std::move(parts.placed), options.threads),
      groups_(std::move(parts.groups)),
      text_bytes_(parts.text_bytes) {
  CutIntoQuanta(options.macs_per_quantum);
}

void NetworkPlan::CutIntoQuanta(double macs_per_quantum) {
  double cost = 0;
  for (size_t i = 0; i < steps().size(); ++i) {
    const double more = CostOf(steps()[i], schedule());
    if (cost > 0 && cost + more > macs_per_quantum) {
      quanta_.push_back(i);
      cost = 0;
    }
    cost += more;
  }
  quanta_.push_back(steps().size());
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

int64_t NetworkStepBytes(const ProgramOperation& operation) {
  int64_t bytes = 0;
  for (const ProgramStep& step : operation.program().steps) {
    // A concatenation has a function for each operand.
    const auto functions = std::max<int64_t>(1, std::ssize(step.operands));
    bytes += IsProduct(step.op) ? kPrimitiveBytes : functions * kFunctionBytes;
  }
  return bytes * PassesOf(operation.request().part);
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
