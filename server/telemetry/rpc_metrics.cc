#include "server/telemetry/rpc_metrics.h"

namespace convgrad {
namespace {

constexpr absl::string_view kUnknown = "unknown";

constexpr absl::string_view kCodeLabels[kStatusCodes] = {
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
};

// Latency buckets of gRFC A66, in seconds.
const prometheus::Histogram::BucketBoundaries& LatencyBuckets() {
  static const auto* const kBuckets =
      new prometheus::Histogram::BucketBoundaries{
          0,     0.00001, 0.00005, 0.0001, 0.0003, 0.0006, 0.0008, 0.001, 0.002,
          0.003, 0.004,   0.005,   0.006,  0.008,  0.01,   0.013,  0.016, 0.02,
          0.025, 0.03,    0.04,    0.05,   0.065,  0.08,   0.1,    0.13,  0.16,
          0.2,   0.25,    0.3,     0.4,    0.5,    0.65,   0.8,    1,     2,
          5,     10,      20,      50,     100};
  return *kBuckets;
}

}  // namespace

int CodeIndex(absl::StatusCode code) {
  const int index = static_cast<int>(code);
  const bool known = index >= 0 && index < kStatusCodes;
  return known ? index : static_cast<int>(absl::StatusCode::kUnknown);
}

absl::string_view CodeLabel(absl::StatusCode code) {
  return kCodeLabels[CodeIndex(code)];
}

RpcMetrics::RpcMetrics(prometheus::Registry* registry,
                       std::vector<MeasuredMethod> methods) {
  auto& started = prometheus::BuildCounter()
                      .Name("grpc_server_started_total")
                      .Help("Calls that arrived.")
                      .Register(*registry);
  auto& handled = prometheus::BuildCounter()
                      .Name("grpc_server_handled_total")
                      .Help("Calls that ended, by status.")
                      .Register(*registry);
  auto& seconds = prometheus::BuildHistogram()
                      .Name("grpc_server_handling_seconds")
                      .Help("From a call's arrival to its final status.")
                      .Register(*registry);
  methods.push_back({kUnknown, "unary", kUnknown});
  for (const MeasuredMethod& method : methods) {
    prometheus::Labels labels = {{"grpc_type", std::string(method.type)},
                                 {"grpc_service", std::string(method.service)},
                                 {"grpc_method", std::string(method.name)}};
    Series& series = series_[method.name];
    series.started = &started.Add(labels);
    series.seconds = &seconds.Add(labels, LatencyBuckets());
    for (int code = 0; code < kStatusCodes; ++code) {
      labels["grpc_code"] = std::string(kCodeLabels[code]);
      series.handled[code] = &handled.Add(labels);
    }
  }
}

RpcMetrics::Series& RpcMetrics::SeriesOf(absl::string_view method) {
  const auto found = series_.find(method);
  return found == series_.end() ? series_.at(kUnknown) : found->second;
}

void RpcMetrics::OnStarted(absl::string_view method) {
  SeriesOf(method).started->Increment();
}

void RpcMetrics::OnHandled(absl::string_view method, absl::StatusCode code,
                           absl::Duration elapsed) {
  Series& series = SeriesOf(method);
  series.handled[CodeIndex(code)]->Increment();
  series.seconds->Observe(absl::ToDoubleSeconds(elapsed));
}

}  // namespace convgrad
