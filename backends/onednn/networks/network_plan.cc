#include "backends/onednn/networks/network_plan.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "backends/core/checked_math.h"
#include "backends/core/status.h"
#include "backends/onednn/library/onednn_threads.h"
#include "backends/onednn/library/onednn_types.h"
#include "backends/onednn/networks/schedule/network_groups.h"
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

}  // namespace

NetworkPlan::NetworkPlan(const NetworkOptions& options, NetworkParts parts)
    : ScheduledPlan(std::move(parts.placed), "network", options.threads),
      groups_(std::move(parts.groups)),
      text_bytes_(parts.text_bytes) {
  CutIntoQuanta(options.macs_per_quantum);
}

void NetworkPlan::CutIntoQuanta(double macs_per_quantum) {
  // Threads take up to 50 us for a step of a few elements, a 4,000th of a
  // quantum. Programs have up to 10,000 steps.
  const double start = macs_per_quantum / 4'000;
  double cost = 0;
  for (size_t i = 0; i < steps().size(); ++i) {
    const double more = start + CostOf(steps()[i], schedule());
    if (cost > 0 && cost + more > macs_per_quantum) {
      quanta_.push_back(i);
      cost = 0;
    }
    cost += more;
  }
  quanta_.push_back(steps().size());
}

absl::Status CheckNetwork(const ProgramOperation& operation) {
  const ProgramRequest& request = operation.request();
  const convgrad::Program& program = operation.program();
  const std::vector<std::string> hidden =
      HiddenValues(program, operation.shapes(), FusionOf(request));
  for (const std::string& name : request.fetched) {
    if (std::find(hidden.begin(), hidden.end(), name) == hidden.end()) continue;
    return Unsupported("fetched", name,
                       "a value that isn't fused with what follows it");
  }
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const ProgramStep& step = program.steps[i];
    const auto check = NetworkOperatorOf(step.op).check;
    if (check == nullptr) continue;
    RETURN_IF_ERROR(check(step, operation.shapes(), StepPath(program, i)));
  }
  return absl::OkStatus();
}

int64_t NetworkPlanningBytes(const ProgramOperation& operation) {
  const bool has_backward = operation.request().part != ProgramPart::kForward;
  // A forward, and the gradients of two operands.
  const int64_t passes = has_backward ? 3 : 1;
  int64_t bytes = 0;
  for (const ProgramStep& step : operation.program().steps) {
    const bool is_product =
        step.op == Operator::kConv || step.op == Operator::kConvTranspose ||
        step.op == Operator::kLinear || step.op == Operator::kMatmul;
    // A concatenation has a function for each operand.
    const auto functions = std::max<int64_t>(1, std::ssize(step.operands));
    bytes = SaturatingAdd(
        bytes,
        passes * (is_product ? kPrimitiveBytes : functions * kFunctionBytes));
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
  return Guard(
      "planning", [&]() -> absl::StatusOr<std::unique_ptr<NetworkPlan>> {
        ASSIGN_OR_RETURN(NetworkParts parts,
                         BuildNetworkParts(operation, options));
        parts.text_bytes = static_cast<int64_t>(operation.text().size());
        return std::make_unique<NetworkPlan>(options, std::move(parts));
      });
}

}  // namespace convgrad::onednn
