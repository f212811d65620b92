#include "server/rpc/calls/call_record.h"

#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "server/rpc/calls/status_conversion.h"
#include "server/telemetry/tracing.h"
#include "spdlog/spdlog.h"

namespace convgrad {
namespace {

void Log(const EndedCall& call, absl::string_view client,
         const grpc::ServerContextBase& context, const std::string& trace_id) {
  const auto level = call.status.code() == absl::StatusCode::kInternal
                         ? spdlog::level::err
                         : spdlog::level::debug;
  if (!spdlog::should_log(level)) return;
  std::string line = absl::StrCat("call method=", call.method, " client=\"",
                                  absl::CHexEscape(client), "\"");
  // A call that was refused before the server knew the client's name.
  if (client.empty()) {
    absl::StrAppend(&line, " peer=\"", absl::CHexEscape(context.peer()), "\"");
  }
  if (!trace_id.empty()) absl::StrAppend(&line, " trace=", trace_id);
  absl::StrAppend(&line, " code=", absl::StatusCodeToString(call.status.code()),
                  " seconds=", absl::ToDoubleSeconds(call.end - call.arrival));
  // The message may quote the request, which may contain line ends.
  if (!call.status.ok()) {
    absl::StrAppend(&line, " cause=\"", absl::CHexEscape(call.status.message()),
                    "\"");
  }
  spdlog::log(level, line);
}

}  // namespace

void RecordEnd(const CallServices& services, absl::string_view client,
               grpc::ServerContextBase* context, const EndedCall& call) {
  if (call.operation != nullptr) {
    services.observer->OnOperation(*call.operation);
  }
  services.observer->OnHandled(call.method, call.status.code(),
                               call.end - call.arrival);
  std::string trace_id = call.caller ? call.caller->trace_id : "";
  if (services.tracer != nullptr) trace_id = services.tracer->Trace(call);
  Log(call, client, *context, trace_id);
  for (const auto& [key, value] : TrailersOf(call.status)) {
    context->AddTrailingMetadata(key, value);
  }
}

}  // namespace convgrad
