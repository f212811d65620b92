#include "server/rpc/calls/call_record.h"

#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "backends/core/status.h"
#include "server/rpc/calls/status_conversion.h"
#include "server/telemetry/tracing.h"
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
  // The message may quote the request, which may contain line ends.
  if (!call.status.ok()) {
    absl::StrAppend(&line, " cause=\"", absl::CHexEscape(call.status.message()),
                    "\"");
  }
  spdlog::log(level, line);
}

// Returns the trace context that the client sent; nullopt if there is none.
std::optional<TraceContext> CallerOf(const grpc::ServerContextBase& context) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(kTraceparentKey);
  if (found == metadata.end()) return std::nullopt;
  return ParseTraceparent({found->second.data(), found->second.size()});
}

}  // namespace

CallRecord::CallRecord(const CallServices& services,
                       grpc::ServerContextBase* context,
                       absl::string_view method)
    : services_(services),
      context_(context),
      method_(method),
      arrival_(absl::Now()) {
  services_.observer->OnStarted(method_);
}

absl::Status CallRecord::Enter(Role role) {
  RETURN_IF_ERROR(services_.lifecycle->CheckServing());
  ASSIGN_OR_RETURN(permit_, services_.gate->Enter(*context_, role));
  return absl::OkStatus();
}

void CallRecord::Close(const absl::Status& status, const OpSample* operation) {
  const EndedCall call = {
      method_, CallerOf(*context_), arrival_, absl::Now(), status, operation};
  if (operation != nullptr) services_.observer->OnOperation(*operation);
  services_.observer->OnHandled(method_, status.code(), call.end - arrival_);
  std::string trace_id = call.caller ? call.caller->trace_id : "";
  if (services_.tracer != nullptr) trace_id = services_.tracer->Trace(call);
  Log(call, permit_.client(), trace_id);
  // Frees the permit before the client gets its answer, because the client may
  // call again at once.
  permit_ = CallPermit();
  for (const auto& [key, value] : TrailersOf(status)) {
    context_->AddTrailingMetadata(key, value);
  }
}

}  // namespace convgrad
