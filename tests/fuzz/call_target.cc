#include "tests/fuzz/call_target.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace convgrad::fuzz {
namespace {

template <typename Request>
Target To(const char* service_and_method, const Request& request,
          bool is_change) {
  return {absl::StrCat("/convgrad.v1.", service_and_method),
          std::make_unique<Request>(request), is_change};
}

template <typename Request>
bool KeepsResults(const Request& request) {
  const auto& results = request.operation().results();
  return std::any_of(results.begin(), results.end(),
                     [](const auto& result) { return result.has_kept(); });
}

}  // namespace

Target TargetOf(const Calls::Call& call) {
  switch (call.request_case()) {
    case Calls::Call::kHave:
      return To("ConvGradSessions/HaveTensors", call.have(), false);
    case Calls::Call::kPut:
      return To("ConvGradSessions/PutTensors", call.put(), true);
    case Calls::Call::kGet:
      return To("ConvGradSessions/GetTensors", call.get(), false);
    case Calls::Call::kDrop:
      return To("ConvGradSessions/DropTensors", call.drop(), true);
    case Calls::Call::kList:
      return To("ConvGradSessions/ListTensors", call.list(), false);
    case Calls::Call::kLoad:
      return To("ConvGradNetworks/LoadProgram", call.load(), true);
    case Calls::Call::kDropPrograms:
      return To("ConvGradNetworks/DropPrograms", call.drop_programs(), true);
    case Calls::Call::kRun:
      return To("ConvGradNetworks/RunProgram", call.run(),
                !call.run().tape().empty() || call.run().has_backward());
    case Calls::Call::kBackwardProgram:
      return To("ConvGradNetworks/BackwardProgram", call.backward_program(),
                true);
    case Calls::Call::kUpdate:
      return To("ConvGradNetworks/UpdateParameters", call.update(), true);
    case Calls::Call::kForward:
      return To("ConvGrad/ConvForward", call.forward(),
                KeepsResults(call.forward()));
    case Calls::Call::kBackward:
      return To("ConvGrad/ConvBackward", call.backward(),
                KeepsResults(call.backward()));
    default:
      return To("ConvGradSessions/ListSessions", call.list_sessions(), false);
  }
}

}  // namespace convgrad::fuzz
