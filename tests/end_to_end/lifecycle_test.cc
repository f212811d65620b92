// Tests a server's lifecycle from outside: health, reflection, metrics,
// draining.
#include <fstream>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "backends/core/status.h"
#include "gtest/gtest.h"
#include "server/rpc/health_check.h"
#include "tests/end_to_end/peers/test_server.h"
#include "tests/server/scheduling/puppet_backend.h"

namespace convgrad {
namespace {

// Returns the sum of the values of the lines of `text` that contain `name` and
// `label`.
double Sum(const std::string& text, const std::string& name,
           const std::string& label) {
  double sum = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::StartsWith(line, absl::StrCat(name, "{"))) continue;
    if (!absl::StrContains(line, label)) continue;
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    sum += std::stod(words.back());
  }
  return sum;
}

TEST(Lifecycle, IsHealthyUntilItDrains) {
  TestServer server;
  EXPECT_TRUE(CheckHealth(server.address(), absl::Minutes(1)).ok());
  EXPECT_TRUE(server.server().Drain());
  const absl::Status status = CheckHealth(server.address(), absl::Minutes(1));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::StrContains(status.message(), "not serving")) << status;
}

TEST(Lifecycle, HealthKnowsTheService) {
  TestServer server;
  // The message is HealthCheckRequest{service}.
  const std::string service = "convgrad.v1.ConvGrad";
  const RawReply reply = CallRaw(
      server.channel(), "/grpc.health.v1.Health/Check",
      absl::StrCat("\x0a", std::string(1, char(service.size())), service));
  EXPECT_TRUE(reply.status.ok()) << reply.status.error_message();
  EXPECT_EQ(reply.response, "\x08\x01");
}

TEST(Lifecycle, NobodyThereIsNotHealthy) {
  std::string address;
  {
    TestServer server;
    address = server.address();
  }
  EXPECT_FALSE(CheckHealth(address, absl::Seconds(10)).ok());
}

TEST(Lifecycle, ReflectionListsAndDescribesTheService) {
  TestServer server;
  const std::string method =
      "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
  // The message is ServerReflectionRequest{list_services: "*"}.
  const std::string services =
      CallStream(server.channel(), method, "\x3a\x01*");
  EXPECT_TRUE(absl::StrContains(services, "convgrad.v1.ConvGrad"));
  // The message is ServerReflectionRequest{file_containing_symbol}.
  const std::string symbol = "convgrad.v1.ConvGrad";
  const std::string file = CallStream(
      server.channel(), method,
      absl::StrCat("\x22", std::string(1, char(symbol.size())), symbol));
  EXPECT_TRUE(absl::StrContains(file, "ConvBackward"));
}

TEST(Lifecycle, MetricsAreServedAndMove) {
  Config config = TestConfig();
  config.metrics_listen = "127.0.0.1:0";
  TestServer server(config);
  const int port = server.server().metrics_port();
  ASSERT_GT(port, 0);
  const std::string before = HttpGet(port, "/metrics");
  EXPECT_TRUE(absl::StrContains(before, "200 OK")) << before;
  const std::string method = "grpc_method=\"ConvBackward\"";
  EXPECT_EQ(Sum(before, "grpc_server_started_total", method), 0);
  grpc::ClientContext context;
  v1::ConvBackwardResponse response;
  v1::ConvBackwardRequest request = SeedBackward();
  ASSERT_TRUE(server.stub().ConvBackward(&context, request, &response).ok());
  request.clear_payloads();
  EXPECT_FALSE(
      CallRaw(server.channel(), "ConvBackward", request.SerializeAsString())
          .status.ok());
  const std::string after = HttpGet(port, "/metrics");
  EXPECT_EQ(Sum(after, "grpc_server_started_total", method), 2);
  EXPECT_EQ(Sum(after, "grpc_server_handled_total", "grpc_code=\"OK\""), 1);
  EXPECT_EQ(
      Sum(after, "grpc_server_handled_total", "grpc_code=\"InvalidArgument\""),
      1);
  EXPECT_EQ(Sum(after, "convgrad_requests_total", "op=\"backward\""), 2);
  EXPECT_EQ(Sum(after, "convgrad_requests_total", "code=\"OK\""), 1);
  EXPECT_EQ(Sum(after, "convgrad_flops_total", "op=\"backward\""), 64);
  EXPECT_EQ(Sum(after, "convgrad_sent_bytes_total", "code=\"OK\""), 52);
  EXPECT_EQ(Sum(after, "convgrad_copied_bytes_total", "code=\"OK\""), 68);
  EXPECT_EQ(Sum(after, "convgrad_compute_seconds_count", "code=\"OK\""), 1);
  EXPECT_EQ(Sum(after, "convgrad_build_info", Version()), 1);
}

TEST(Lifecycle, DrainFinishesWhatRunsAndRefusesTheRest) {
  PuppetStrings strings;
  std::vector<RegisteredBackend> backends;
  backends.push_back(RegisteredPuppet("puppet", &strings));
  TestServer server(TestConfig(), std::move(backends));
  strings.HoldRuns();
  grpc::Status running;
  std::thread caller([&] {
    grpc::ClientContext context;
    v1::ConvBackwardResponse response;
    running = server.stub().ConvBackward(&context, SeedBackward(), &response);
  });
  strings.AwaitRuns(1);
  bool drained = false;
  std::thread drainer([&] { drained = server.server().Drain(); });
  RawReply refused;
  // Draining starts some time after the call of Drain.
  do {
    refused = CallRaw(server.channel(), "GetCapabilities", "");
  } while (refused.status.ok());
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(refused.trailers.reason, "DRAINING");
  refused = CallRaw(server.channel(), "ConvBackward",
                    SeedBackward().SerializeAsString());
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  strings.Release();
  drainer.join();
  caller.join();
  EXPECT_TRUE(drained);
  EXPECT_TRUE(running.ok()) << running.error_message();
}

TEST(Lifecycle, DrainGivesUpInTime) {
  PuppetStrings strings;
  std::vector<RegisteredBackend> backends;
  backends.push_back(RegisteredPuppet("puppet", &strings));
  Config config = TestConfig();
  config.drain_timeout = absl::Milliseconds(10);
  TestServer server(config, std::move(backends));
  strings.HoldRuns();
  std::thread caller([&] {
    grpc::ClientContext context;
    v1::ConvBackwardResponse response;
    server.stub().ConvBackward(&context, SeedBackward(), &response);
  });
  strings.AwaitRuns(1);
  EXPECT_FALSE(server.server().Drain());
  strings.Release();
  caller.join();
}

TEST(Lifecycle, StopsWhileCallsRunAndWait) {
  PuppetStrings strings;
  std::vector<RegisteredBackend> backends;
  backends.push_back(RegisteredPuppet("puppet", &strings));
  Config config = TestConfig();
  config.max_message_bytes = 1000;
  TestServer server(config, std::move(backends));
  strings.HoldRuns();
  std::vector<std::thread> callers;
  std::vector<grpc::Status> statuses(3);
  for (grpc::Status& status : statuses) {
    callers.emplace_back([&server, &status] {
      grpc::ClientContext context;
      v1::ConvBackwardResponse response;
      status = server.stub().ConvBackward(&context, SeedBackward(), &response);
    });
  }
  while (server.server().gauges().SumOf("convgrad_queue_depth") < 2)
    std::this_thread::yield();
  std::thread stopper([&server] { server.Stop(); });
  strings.Release();
  stopper.join();
  for (std::thread& caller : callers) caller.join();
}

TEST(Lifecycle, ServesUnixSocketsBesidePorts) {
  Config config = TestConfig();
  const std::string socket =
      absl::StrCat("unix:", testing::TempDir(), "/convgrad_lifecycle.sock");
  config.listen = absl::StrCat("127.0.0.1:0,", socket);
  TestServer server(config);
  ASSERT_EQ(server.server().addresses().size(), 2u);
  EXPECT_EQ(server.server().addresses()[1], socket);
  EXPECT_TRUE(CheckHealth(socket, absl::Minutes(1)).ok());
}

TEST(Lifecycle, LeavesAFileThatIsNoSocketWhereItIs) {
  const std::string path = absl::StrCat(testing::TempDir(), "/convgrad_file");
  std::ofstream(path) << "precious";
  for (const auto& [flag, listen, regions] :
       {std::tuple{"--listen", absl::StrCat("unix:", path), std::string()},
        std::tuple{"--regions_listen", TestConfig().listen,
                   absl::StrCat("unix:", path)}}) {
    Config config = TestConfig();
    config.listen = listen;
    config.regions_listen = regions;
    const absl::Status status = Server::Start(config).status();
    ASSERT_TRUE(DetailOf(status).has_value()) << status;
    EXPECT_EQ(DetailOf(status)->field, flag);
    std::string text;
    std::ifstream(path) >> text;
    EXPECT_EQ(text, "precious") << flag;
  }
}

TEST(Lifecycle, RefusesAPortThatIsTaken) {
  TestServer server;
  Config config = TestConfig();
  config.listen = server.address();
  const absl::Status status = Server::Start(config).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(DetailOf(status).has_value());
  EXPECT_EQ(DetailOf(status)->field, "--listen");
}

TEST(Lifecycle, RefusesBackendsThatAreNotThere) {
  Config config = TestConfig();
  config.backends = "reference,tpu";
  const absl::Status status = Server::Start(config).status();
  EXPECT_EQ(DetailOf(status)->field, "--backends");
}

}  // namespace
}  // namespace convgrad
