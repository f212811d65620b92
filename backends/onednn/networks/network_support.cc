#include "backends/onednn/networks/network_support.h"

#include <algorithm>
#include <string>
#include <vector>

#include "backends/core/status.h"
#include "backends/onednn/networks/schedule/network_groups.h"
#include "backends/onednn/networks/steps/network_steps.h"

namespace convgrad::onednn {

absl::Status CheckNetwork(const ProgramOperation& operation) {
  const ProgramRequest& request = operation.request();
  const convgrad::Program& program = operation.program();
  const std::vector<std::string> hidden =
      HiddenValues(program, operation.shapes(), FusionOf(request));
  for (const std::string& name : request.fetched) {
    if (std::find(hidden.begin(), hidden.end(), name) == hidden.end()) continue;
    return MakeError(absl::StatusCode::kUnimplemented,
                     {Reason::kUnsupported, "fetched", name,
                      "a value that isn't fused with what follows it"});
  }
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const ProgramStep& step = program.steps[i];
    const auto check = NetworkOperatorOf(step.op).check;
    if (check == nullptr) continue;
    RETURN_IF_ERROR(check(step, operation.shapes(), StepPath(program, i)));
  }
  return absl::OkStatus();
}

}  // namespace convgrad::onednn
