// This tracer uses opentelemetry-cpp 1.19. Spans wait in a bounded queue of the
// library, whose thread sends them. The library drops spans that don't fit.
#include <array>
#include <atomic>
#include <chrono>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "backends/core/steady_now.h"
#include "opentelemetry/exporters/otlp/otlp_grpc_exporter_factory.h"
#include "opentelemetry/exporters/otlp/otlp_grpc_exporter_options.h"
#include "opentelemetry/sdk/common/global_log_handler.h"
#include "opentelemetry/sdk/resource/resource.h"
#include "opentelemetry/sdk/trace/batch_span_processor_factory.h"
#include "opentelemetry/sdk/trace/batch_span_processor_options.h"
#include "opentelemetry/sdk/trace/samplers/always_on_factory.h"
#include "opentelemetry/sdk/trace/samplers/parent_factory.h"
#include "opentelemetry/sdk/trace/tracer_provider.h"
#include "opentelemetry/sdk/trace/tracer_provider_factory.h"
#include "opentelemetry/trace/span.h"
#include "opentelemetry/trace/span_startoptions.h"
#include "opentelemetry/trace/tracer.h"
#include "server/telemetry/rpc_metrics.h"
#include "server/telemetry/tracing.h"
#include "spdlog/spdlog.h"

namespace convgrad {
namespace {

namespace api = opentelemetry::trace;
namespace logging = opentelemetry::sdk::common::internal_log;
namespace otlp = opentelemetry::exporter::otlp;
namespace sdk = opentelemetry::sdk::trace;
using opentelemetry::nostd::shared_ptr;
using opentelemetry::nostd::string_view;

// The time limit of one batch. At the end the library sends at most four
// batches.
constexpr auto kExportTimeout = std::chrono::seconds(2);
constexpr auto kExportInterval = std::chrono::seconds(1);

class LogToOurs final : public logging::LogHandler {
 public:
  void Handle(
      logging::LogLevel level, const char* /*file*/, int /*line*/,
      const char* message,
      const opentelemetry::sdk::common::AttributeMap& /*attributes*/) noexcept
      override {
    if (level > logging::LogLevel::Warning) return;
    // A collector that refuses quickly gets many small batches a second.
    const int64_t second = absl::ToUnixSeconds(absl::Now());
    if (last_second_.exchange(second) == second) return;
    spdlog::warn("tracing: {}", message == nullptr ? "" : message);
  }

 private:
  std::atomic<int64_t> last_second_ = 0;  // Of the last line.
};

string_view View(absl::string_view text) { return {text.data(), text.size()}; }

std::chrono::nanoseconds SinceEpoch(absl::Time time) {
  return std::chrono::nanoseconds(absl::ToUnixNanos(time));
}

// Starts a span that began at `begin`. The span's length is the difference of
// two times of SteadyNow.
shared_ptr<api::Span> StartSpan(api::Tracer* tracer, absl::string_view name,
                                api::SpanContext parent, api::SpanKind kind,
                                absl::Time begin) {
  api::StartSpanOptions options;
  options.start_system_time =
      std::chrono::system_clock::time_point(SinceEpoch(WallTime(begin)));
  options.start_steady_time =
      std::chrono::steady_clock::time_point(SinceEpoch(begin));
  options.parent = std::move(parent);
  options.kind = kind;
  return tracer->StartSpan(View(name), options);
}

void EndSpan(api::Span* span, absl::Time end) {
  api::EndSpanOptions options;
  options.end_steady_time =
      std::chrono::steady_clock::time_point(SinceEpoch(end));
  span->End(options);
}

api::SpanContext ContextOf(const std::optional<TraceContext>& caller) {
  if (!caller) return api::SpanContext::GetInvalid();
  const std::string trace_id = absl::HexStringToBytes(caller->trace_id);
  const std::string parent_id = absl::HexStringToBytes(caller->parent_id);
  const auto bytes = [](const std::string& id) {
    return reinterpret_cast<const uint8_t*>(id.data());
  };
  return api::SpanContext(
      api::TraceId({bytes(trace_id), api::TraceId::kSize}),
      api::SpanId({bytes(parent_id), api::SpanId::kSize}),
      api::TraceFlags(caller->sampled ? api::TraceFlags::kIsSampled : 0),
      /*is_remote=*/true);
}

// Returns whether OpenTelemetry's conventions for RPCs count `code` as a
// failure of the server.
bool IsServersFailure(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDataLoss:
      return true;
    default:
      return false;
  }
}

void Describe(const EndedCall& call, api::Span* span) {
  span->SetAttribute("rpc.system", "grpc");
  span->SetAttribute("rpc.service", View(call.service));
  span->SetAttribute("rpc.method", View(call.method));
  span->SetAttribute("rpc.grpc.status_code", CodeIndex(call.status.code()));
  if (IsServersFailure(call.status.code())) {
    // The message may quote bytes that aren't valid in a string field.
    span->SetStatus(api::StatusCode::kError,
                    absl::CHexEscape(call.status.message()));
  }
  if (call.operation == nullptr) return;
  const OpSample& sample = *call.operation;
  span->SetAttribute("convgrad.backend", View(sample.backend));
  span->SetAttribute("convgrad.dtype", View(sample.dtype));
  span->SetAttribute("convgrad.reason", View(sample.reason));
  if (!sample.session.empty()) {
    span->SetAttribute("convgrad.session", View(sample.session));
  }
  span->SetAttribute("convgrad.flops", sample.flops);
  span->SetAttribute("convgrad.received_bytes", sample.bytes_received);
  span->SetAttribute("convgrad.sent_bytes", sample.bytes_sent);
}

// Adds one event for each kind of step of a network, at the end of its
// computing.
void AddStepEvents(const OpSample& sample, api::Span* span) {
  for (const auto& [step, time] : sample.steps) {
    span->AddEvent(View(step),
                   std::chrono::system_clock::time_point(
                       SinceEpoch(WallTime(sample.times.compute.end))),
                   {{"convgrad.busy_seconds", absl::ToDoubleSeconds(time)}});
  }
}

void TraceStages(const StageTimes& times, const api::SpanContext& parent,
                 api::Tracer* tracer) {
  const std::array<std::pair<absl::string_view, const StageTime*>, 9> stages = {
      {{"admission", &times.admission},
       {"receive", &times.receive},
       {"decode", &times.decode},
       {"queue", &times.queue},
       {"plan", &times.plan},
       {"reorder", &times.reorder},
       {"compute", &times.compute},
       {"transfer", &times.transfer},
       {"encode", &times.encode}}};
  for (const auto& [name, time] : stages) {
    if (!time->reached()) continue;
    const shared_ptr<api::Span> span =
        StartSpan(tracer, name, parent, api::SpanKind::kInternal, time->begin);
    span->SetAttribute("convgrad.busy_seconds",
                       absl::ToDoubleSeconds(time->busy));
    EndSpan(span.get(), time->end);
  }
}

class OtlpTracer final : public Tracer {
 public:
  OtlpTracer(const std::string& endpoint, const std::string& version) {
    otlp::OtlpGrpcExporterOptions exporter;
    exporter.endpoint = endpoint;
    exporter.use_ssl_credentials = absl::StartsWith(endpoint, "https:");
    exporter.timeout = kExportTimeout;
    sdk::BatchSpanProcessorOptions batches;
    batches.schedule_delay_millis = kExportInterval;
    // Adds to the attributes in OTEL_RESOURCE_ATTRIBUTES.
    const auto resource = opentelemetry::sdk::resource::Resource::Create(
        {{"service.name", "convgrad"}, {"service.version", version}});
    provider_ = sdk::TracerProviderFactory::Create(
        sdk::BatchSpanProcessorFactory::Create(
            otlp::OtlpGrpcExporterFactory::Create(exporter), batches),
        resource,
        sdk::ParentBasedSamplerFactory::Create(
            sdk::AlwaysOnSamplerFactory::Create()));
    tracer_ = provider_->GetTracer("convgrad", version);
  }

  ~OtlpTracer() override { provider_->Shutdown(); }

  std::string Trace(const EndedCall& call) override {
    const shared_ptr<api::Span> span =
        StartSpan(tracer_.get(), absl::StrCat(call.service, "/", call.method),
                  ContextOf(call.caller), api::SpanKind::kServer, call.arrival);
    const api::SpanContext context = span->GetContext();
    if (span->IsRecording()) {
      Describe(call, span.get());
      if (call.operation != nullptr) {
        AddStepEvents(*call.operation, span.get());
        TraceStages(call.operation->times, context, tracer_.get());
      }
      EndSpan(span.get(), call.end);
    }
    std::array<char, 2 * api::TraceId::kSize> hex;
    context.trace_id().ToLowerBase16(hex);
    return std::string(hex.data(), hex.size());
  }

 private:
  std::unique_ptr<sdk::TracerProvider> provider_;
  shared_ptr<api::Tracer> tracer_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Tracer>> StartTracing(
    const std::string& endpoint, const std::string& version) {
  logging::GlobalLogHandler::SetLogHandler(
      shared_ptr<logging::LogHandler>(new LogToOurs));
  return std::make_unique<OtlpTracer>(endpoint, version);
}

}  // namespace convgrad
