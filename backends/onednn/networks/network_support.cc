#include "backends/onednn/networks/network_support.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "backends/core/checked_math.h"
#include "backends/core/status.h"
#include "backends/onednn/networks/schedule/network_groups.h"

namespace convgrad::onednn {
namespace {

absl::Status Unsupported(absl::string_view field, absl::string_view found,
                         absl::string_view expected) {
  return MakeError(absl::StatusCode::kUnimplemented,
                   {Reason::kUnsupported, std::string(field),
                    std::string(found), std::string(expected)});
}

// Positions of poolings are numbers of 32 bits.
absl::Status CheckPositions(const ProgramOperation& operation) {
  const convgrad::Program& program = operation.program();
  TensorDescriptor value;
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const ProgramStep& step = program.steps[i];
    if (!IsPooling(step.op)) continue;
    for (const std::string& name : {step.operands[0], step.result}) {
      value.dims = operation.shapes().dims.at(name);
      const auto spatial = absl::MakeConstSpan(value.dims).subspan(2);
      const std::optional<int64_t> positions = CheckedProduct(spatial);
      if (positions && *positions < int64_t{1} << 31) continue;
      return Unsupported(StepPath(program, i), ToString(value),
                         "fewer than 2^31 positions of an image");
    }
  }
  return absl::OkStatus();
}

}  // namespace

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
  return CheckPositions(operation);
}

}  // namespace convgrad::onednn
