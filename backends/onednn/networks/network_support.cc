#include "backends/onednn/networks/network_support.h"

#include <algorithm>
#include <string>
#include <vector>

#include "backends/core/status.h"
#include "backends/onednn/networks/network_groups.h"

namespace convgrad::onednn {
namespace {

absl::Status Unsupported(absl::string_view field, absl::string_view found,
                         absl::string_view expected) {
  return MakeError(absl::StatusCode::kUnimplemented,
                   {Reason::kUnsupported, std::string(field),
                    std::string(found), std::string(expected)});
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
  return absl::OkStatus();
}

}  // namespace convgrad::onednn
