#include "server/telemetry/metrics_endpoint.h"

#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "backends/core/status.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

std::unique_ptr<MetricsEndpoint> MustStart(MetricsOptions options = {}) {
  constexpr char kService[] = "convgrad.v1.ConvGrad";
  options.methods = {{"ConvForward", "unary", kService},
                     {"ConvBackward", "unary", kService},
                     {"GetCapabilities", "unary", kService}};
  options.backends = {"onednn", "reference"};
  options.operations = {"forward", "backward"};
  options.version = "1.2.3";
  absl::StatusOr<std::unique_ptr<MetricsEndpoint>> endpoint =
      MetricsEndpoint::Start(options);
  EXPECT_TRUE(endpoint.ok()) << endpoint.status();
  return *std::move(endpoint);
}

// Returns the value of the one series whose line has `name` and all of
// `labels`; "" if there isn't exactly one.
std::string ValueOf(const MetricsEndpoint& endpoint, absl::string_view name,
                    const std::vector<std::string>& labels = {}) {
  const std::string text = endpoint.Text();
  std::string value;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    bool matches = absl::StartsWith(line, absl::StrCat(name, "{")) ||
                   absl::StartsWith(line, absl::StrCat(name, " "));
    for (const std::string& label : labels) {
      matches = matches && absl::StrContains(line, label);
    }
    if (!matches) continue;
    if (!value.empty()) return "";
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    value = words.back();
  }
  return value;
}

OpSample Sample() {
  OpSample sample;
  sample.operation = "backward";
  sample.backend = "onednn";
  sample.dtype = "bf16";
  sample.queued = true;
  sample.ran = true;
  sample.times.queue.busy = absl::Milliseconds(10);
  sample.times.reorder.busy = absl::Milliseconds(20);
  sample.times.compute.busy = absl::Milliseconds(30);
  sample.flops = 1000;
  sample.bytes_received = 300;
  sample.bytes_sent = 200;
  sample.bytes_copied = 100;
  sample.planned = true;
  return sample;
}

const std::vector<std::string>& SampleLabels() {
  static const auto* const kLabels = new std::vector<std::string>{
      "op=\"backward\"", "backend=\"onednn\"", "dtype=\"bf16\"", "code=\"OK\""};
  return *kLabels;
}

TEST(Metrics, RegistersEveryMethodAndCodeAtZero) {
  const auto endpoint = MustStart();
  for (const char* method :
       {"ConvForward", "ConvBackward", "GetCapabilities"}) {
    const std::string label = absl::StrCat("grpc_method=\"", method, "\"");
    EXPECT_EQ(ValueOf(*endpoint, "grpc_server_started_total", {label}), "0");
    for (const char* code : {"OK", "InvalidArgument", "Unauthenticated"}) {
      EXPECT_EQ(ValueOf(*endpoint, "grpc_server_handled_total",
                        {label, absl::StrCat("grpc_code=\"", code, "\"")}),
                "0");
    }
    EXPECT_EQ(ValueOf(*endpoint, "grpc_server_handling_seconds_count", {label}),
              "0");
  }
  EXPECT_EQ(
      ValueOf(*endpoint, "convgrad_rejections_total", {"reason=\"BUSY\""}),
      "0");
}

TEST(Metrics, CountsCalls) {
  const auto endpoint = MustStart();
  endpoint->observer()->OnStarted("ConvForward");
  endpoint->observer()->OnStarted("ConvForward");
  endpoint->observer()->OnHandled("ConvForward",
                                  absl::StatusCode::kResourceExhausted,
                                  absl::Milliseconds(1500));
  const std::string method = "grpc_method=\"ConvForward\"";
  const std::vector<std::string> full = {
      method, "grpc_type=\"unary\"", "grpc_service=\"convgrad.v1.ConvGrad\""};
  EXPECT_EQ(ValueOf(*endpoint, "grpc_server_started_total", full), "2");
  EXPECT_EQ(ValueOf(*endpoint, "grpc_server_handled_total",
                    {method, "grpc_code=\"ResourceExhausted\""}),
            "1");
  EXPECT_EQ(ValueOf(*endpoint, "grpc_server_handling_seconds_sum", full),
            "1.5");
  EXPECT_EQ(ValueOf(*endpoint, "grpc_server_handling_seconds_bucket",
                    {method, "le=\"2\""}),
            "1");
  EXPECT_EQ(ValueOf(*endpoint, "grpc_server_handling_seconds_bucket",
                    {method, "le=\"1\""}),
            "0");
}

TEST(Metrics, HasHistogramsOfWhatHasRunAlone) {
  const auto endpoint = MustStart();
  const std::string name = "convgrad_compute_seconds_bucket";
  EXPECT_EQ(ValueOf(*endpoint, "convgrad_requests_total", SampleLabels()), "0");
  EXPECT_FALSE(absl::StrContains(endpoint->Text(), name));
  OpSample refused = Sample();
  refused.ran = false;
  endpoint->observer()->OnOperation(refused);
  EXPECT_FALSE(absl::StrContains(endpoint->Text(), name));
  endpoint->observer()->OnOperation(Sample());
  std::vector<std::string> labels = SampleLabels();
  labels.push_back("le=\"0.05\"");
  EXPECT_EQ(ValueOf(*endpoint, name, labels), "1");
}

TEST(Metrics, CountsMethodsThatDoNotExistTogether) {
  const auto endpoint = MustStart();
  endpoint->observer()->OnStarted("whatever a client writes");
  EXPECT_EQ(ValueOf(*endpoint, "grpc_server_started_total",
                    {"grpc_method=\"unknown\""}),
            "1");
}

TEST(Metrics, CountsAnOperation) {
  const auto endpoint = MustStart();
  endpoint->observer()->OnOperation(Sample());
  const auto value = [&](absl::string_view name) {
    return ValueOf(*endpoint, name, SampleLabels());
  };
  EXPECT_EQ(value("convgrad_requests_total"), "1");
  EXPECT_EQ(value("convgrad_queue_seconds_sum"), "0.01");
  EXPECT_EQ(value("convgrad_reorder_seconds_sum"), "0.02");
  EXPECT_EQ(value("convgrad_compute_seconds_sum"), "0.03");
  EXPECT_EQ(value("convgrad_flops_total"), "1000");
  EXPECT_EQ(value("convgrad_received_bytes_total"), "300");
  EXPECT_EQ(value("convgrad_sent_bytes_total"), "200");
  EXPECT_EQ(value("convgrad_copied_bytes_total"), "100");
  EXPECT_EQ(ValueOf(*endpoint, "convgrad_plan_cache_misses_total"), "1");
  EXPECT_EQ(ValueOf(*endpoint, "convgrad_plan_cache_hits_total"), "0");
}

TEST(Metrics, CountsARefusalWithoutTimesItDidNotSpend) {
  const auto endpoint = MustStart();
  OpSample sample;
  sample.operation = "forward";
  sample.code = absl::StatusCode::kResourceExhausted;
  sample.reason = "BUSY";
  endpoint->observer()->OnOperation(sample);
  const std::vector<std::string> labels = {"op=\"forward\"", "backend=\"none\"",
                                           "dtype=\"none\"",
                                           "code=\"ResourceExhausted\""};
  EXPECT_EQ(ValueOf(*endpoint, "convgrad_requests_total", labels), "1");
  EXPECT_EQ(ValueOf(*endpoint, "convgrad_queue_seconds_count", labels), "");
  EXPECT_EQ(ValueOf(*endpoint, "convgrad_compute_seconds_count", labels), "");
  EXPECT_EQ(
      ValueOf(*endpoint, "convgrad_rejections_total", {"reason=\"BUSY\""}),
      "1");
  EXPECT_EQ(ValueOf(*endpoint, "convgrad_plan_cache_misses_total"), "0");
}

TEST(Metrics, KeepsItsLabelSetsClosed) {
  const auto endpoint = MustStart();
  OpSample sample = Sample();
  sample.backend = "made up";
  sample.dtype = "f8";
  sample.reason = "BECAUSE";
  sample.code = static_cast<absl::StatusCode>(99);
  endpoint->observer()->OnOperation(sample);
  const std::string text = endpoint->Text();
  EXPECT_FALSE(absl::StrContains(text, "made up"));
  EXPECT_FALSE(absl::StrContains(text, "f8"));
  EXPECT_FALSE(absl::StrContains(text, "BECAUSE"));
  EXPECT_EQ(ValueOf(*endpoint, "convgrad_requests_total",
                    {"backend=\"none\"", "dtype=\"none\"", "code=\"Unknown\""}),
            "1");
}

TEST(Metrics, CountsByPriority) {
  const auto endpoint = MustStart();
  OpSample sample = Sample();
  sample.priority = "interactive";
  endpoint->observer()->OnOperation(sample);
  sample.queued = false;
  sample.code = absl::StatusCode::kResourceExhausted;
  sample.reason = "BUSY";
  endpoint->observer()->OnOperation(sample);
  const auto value = [&](const char* name, const char* priority) {
    return ValueOf(*endpoint, name,
                   {absl::StrCat("priority=\"", priority, "\"")});
  };
  EXPECT_EQ(value("convgrad_priority_queue_seconds_count", "interactive"), "1");
  EXPECT_EQ(value("convgrad_priority_queue_seconds_count", "batch"), "0");
  EXPECT_EQ(value("convgrad_priority_busy_total", "interactive"), "1");
  EXPECT_EQ(value("convgrad_priority_busy_total", "batch"), "0");
}

TEST(Metrics, ReadsGaugesWhenScraped) {
  MetricsOptions options;
  int depth = 3;
  options.gauges = [&depth] {
    Readings now;
    now.Gauge("depth", "Of a queue.", depth, {{"priority", "batch"}});
    now.Counter("bytes_total", "Since the start.", int64_t{4096});
    now.Gauge("depth", "Of a queue.", 1, {{"priority", "interactive"}});
    return now;
  };
  const auto endpoint = MustStart(options);
  const std::vector<std::string> batch = {"priority=\"batch\""};
  EXPECT_EQ(ValueOf(*endpoint, "depth", batch), "3");
  depth = 5;
  EXPECT_EQ(ValueOf(*endpoint, "depth", batch), "5");
  EXPECT_EQ(ValueOf(*endpoint, "depth", {"priority=\"interactive\""}), "1");
  EXPECT_EQ(ValueOf(*endpoint, "bytes_total"), "4096");
  EXPECT_TRUE(
      absl::StrContains(endpoint->Text(), "# TYPE bytes_total counter"));
}

TEST(Metrics, CountsWhatCrossesToDevices) {
  const auto endpoint = MustStart();
  EXPECT_EQ(ValueOf(*endpoint, "convgrad_transferred_bytes_total"), "");
  OpSample sample = Sample();
  sample.times.transfer.busy = absl::Milliseconds(500);
  sample.bytes_transferred = 1000;
  endpoint->observer()->OnOperation(sample);
  endpoint->observer()->OnOperation(sample);
  const std::vector<std::string> labels = {"backend=\"onednn\""};
  EXPECT_EQ(ValueOf(*endpoint, "convgrad_transferred_bytes_total", labels),
            "2000");
  EXPECT_EQ(ValueOf(*endpoint, "convgrad_transfer_seconds_total", labels), "1");
}

TEST(Metrics, CountsReferenceStepsFromTheStart) {
  const auto endpoint = MustStart();
  const std::vector<std::string> labels = {"op=\"backward\"", "dtype=\"bf16\""};
  EXPECT_EQ(ValueOf(*endpoint, "convgrad_reference_steps_total", labels), "0");
  OpSample sample = Sample();
  endpoint->observer()->OnOperation(sample);
  EXPECT_EQ(ValueOf(*endpoint, "convgrad_reference_steps_total", labels), "0");
  sample.reference_steps = 3;
  endpoint->observer()->OnOperation(sample);
  EXPECT_EQ(ValueOf(*endpoint, "convgrad_reference_steps_total", labels), "3");
}

TEST(Metrics, SaysWhatIsRunning) {
  const auto endpoint = MustStart();
  EXPECT_EQ(ValueOf(*endpoint, "convgrad_build_info",
                    {"version=\"1.2.3\"", "backends=\"onednn,reference\""}),
            "1");
}

TEST(Metrics, BindsAnyPortAndRefusesATakenOne) {
  MetricsOptions options;
  options.listen = "127.0.0.1:0";
  const auto endpoint = MustStart(options);
  EXPECT_GT(endpoint->port(), 0);
  options.listen = absl::StrCat("127.0.0.1:", endpoint->port());
  const absl::Status taken = MetricsEndpoint::Start(options).status();
  EXPECT_EQ(taken.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(DetailOf(taken)->field, "--metrics_listen");
}

TEST(Metrics, TakesSamplesFromManyThreads) {
  const auto endpoint = MustStart();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&endpoint, t] {
      for (int i = 0; i < 100; ++i) {
        OpSample sample = Sample();
        // The cells are unused so far.
        sample.code = static_cast<absl::StatusCode>(i % 17);
        sample.operation = t % 2 == 0 ? "forward" : "backward";
        endpoint->observer()->OnOperation(sample);
        if (i % 50 == 0) endpoint->Text();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ValueOf(*endpoint, "convgrad_plan_cache_misses_total"), "400");
}

}  // namespace
}  // namespace convgrad
