#include "server/telemetry/rpc_metrics.h"

#include <iterator>
#include <string>

namespace convgrad {
namespace {

struct KnownMethod {
  absl::string_view name;
  absl::string_view type;
  absl::string_view service;
};

constexpr absl::string_view kService = "convgrad.v1.ConvGrad";
constexpr absl::string_view kSessions = "convgrad.v1.ConvGradSessions";
constexpr absl::string_view kNetworks = "convgrad.v1.ConvGradNetworks";

constexpr KnownMethod kKnownMethods[] = {
    {"ConvForward", "unary", kService},
    {"ConvBackward", "unary", kService},
    {"ConvForwardStream", "bidi_stream", kService},
    {"ConvBackwardStream", "bidi_stream", kService},
    {"GetCapabilities", "unary", kService},
    {"OpenSession", "unary", kSessions},
    {"ResumeSession", "unary", kSessions},
    {"RenewSession", "unary", kSessions},
    {"CloseSession", "unary", kSessions},
    {"ListSessions", "unary", kSessions},
    {"PutTensors", "unary", kSessions},
    {"PutTensorsStream", "client_stream", kSessions},
    {"GetTensors", "unary", kSessions},
    {"GetTensorsStream", "server_stream", kSessions},
    {"DropTensors", "unary", kSessions},
    {"ListTensors", "unary", kSessions},
    {"SaveState", "unary", kSessions},
    {"RestoreState", "unary", kSessions},
    {"DropState", "unary", kSessions},
    {"HaveTensors", "unary", kSessions},
    {"LoadProgram", "unary", kNetworks},
    {"DropPrograms", "unary", kNetworks},
    {"RunProgram", "unary", kNetworks},
    {"BackwardProgram", "unary", kNetworks},
    {"UpdateParameters", "unary", kNetworks},
    {"Warmup", "unary", "convgrad.v1.ConvGradAdmin"},
    {"unknown", "unary", "unknown"}};

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

// Returns the index of `method`; the last one ("unknown") if it isn't known.
int IndexOf(absl::string_view method) {
  int index = 0;
  while (index + 1 < static_cast<int>(std::size(kKnownMethods)) &&
         kKnownMethods[index].name != method) {
    ++index;
  }
  return index;
}

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

absl::string_view ServiceOf(absl::string_view method) {
  return kKnownMethods[IndexOf(method)].service;
}

int CodeIndex(absl::StatusCode code) {
  const int index = static_cast<int>(code);
  const bool known = index >= 0 && index < kStatusCodes;
  return known ? index : static_cast<int>(absl::StatusCode::kUnknown);
}

absl::string_view CodeLabel(absl::StatusCode code) {
  return kCodeLabels[CodeIndex(code)];
}

RpcMetrics::RpcMetrics(prometheus::Registry* registry) {
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
  static_assert(std::size(kKnownMethods) == kMethods);
  for (int i = 0; i < kMethods; ++i) {
    prometheus::Labels labels = {
        {"grpc_type", std::string(kKnownMethods[i].type)},
        {"grpc_service", std::string(kKnownMethods[i].service)},
        {"grpc_method", std::string(kKnownMethods[i].name)}};
    methods_[i].started = &started.Add(labels);
    methods_[i].seconds = &seconds.Add(labels, LatencyBuckets());
    for (int code = 0; code < kStatusCodes; ++code) {
      labels["grpc_code"] = std::string(kCodeLabels[code]);
      methods_[i].handled[code] = &handled.Add(labels);
    }
  }
}

void RpcMetrics::OnStarted(absl::string_view method) {
  methods_[IndexOf(method)].started->Increment();
}

void RpcMetrics::OnHandled(absl::string_view method, absl::StatusCode code,
                           absl::Duration elapsed) {
  Method& handles = methods_[IndexOf(method)];
  handles.handled[CodeIndex(code)]->Increment();
  handles.seconds->Observe(absl::ToDoubleSeconds(elapsed));
}

}  // namespace convgrad
