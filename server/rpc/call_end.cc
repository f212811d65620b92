#include "server/rpc/call_end.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "spdlog/spdlog.h"

namespace convgrad {
namespace {

void Log(const EndedCall& call, const std::string& client,
         const std::string& trace_id) {
  const auto level = call.status.code() == absl::StatusCode::kInternal
                         ? spdlog::level::err
                         : spdlog::level::debug;
  if (!spdlog::should_log(level)) return;
  std::string line = absl::StrCat("call method=", call.method, " client=\"",
                                  absl::CHexEscape(client), "\"");
  if (!trace_id.empty()) absl::StrAppend(&line, " trace=", trace_id);
  absl::StrAppend(&line, " code=", absl::StatusCodeToString(call.status.code()),
                  " seconds=", absl::ToDoubleSeconds(call.end - call.arrival));
  // Parts of a request may be in there, line ends too.
  if (!call.status.ok()) {
    absl::StrAppend(&line, " cause=\"", absl::CHexEscape(call.status.message()),
                    "\"");
  }
  spdlog::log(level, line);
}

}  // namespace

std::optional<TraceContext> CallerOf(
    const grpc::CallbackServerContext& context) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(kTraceparentKey);
  if (found == metadata.end()) return std::nullopt;
  return ParseTraceparent({found->second.data(), found->second.size()});
}

void TellEnd(const CallServices& services, const EndedCall& call,
             const std::string& client) {
  if (call.operation != nullptr)
    services.observer->OnOperation(*call.operation);
  services.observer->OnHandled(call.method, call.status.code(),
                               call.end - call.arrival);
  std::string trace_id = call.caller ? call.caller->trace_id : "";
  if (services.tracer != nullptr) trace_id = services.tracer->Trace(call);
  Log(call, client, trace_id);
}

}  // namespace convgrad
