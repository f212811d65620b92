// Tests when a server takes calls: health by name, warm-up, ageing connections,
// reloads, starts after a crash.
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "backends/core/status.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/peers/child_server.h"
#include "tests/end_to_end/peers/health_of.h"
#include "tests/end_to_end/peers/test_server.h"
#include "tests/server/scheduling/puppet_backend.h"

namespace convgrad {
namespace {

std::shared_ptr<grpc::Channel> ChannelTo(const std::string& address) {
  return grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
}

// Replaces the file at once: a server that is reading it sees the old text or
// the new one.
std::string WriteFile(const std::string& name, const std::string& text) {
  std::string path = absl::StrCat(testing::TempDir(), "/", name);
  const std::string written = path + ".new";
  std::ofstream(written) << text;
  std::filesystem::rename(written, path);
  return path;
}

TEST(Readiness, TheHealthListenerServesHealthAlone) {
  Config config = TestConfig();
  config.health_listen = "127.0.0.1:0";
  TestServer server(config);
  const auto channel = ChannelTo(server.server().health_address());
  for (const char* service :
       {"", "startup", "liveness", "readiness", "convgrad.v1.ConvGrad"}) {
    EXPECT_EQ(HealthOf(channel, service), kServing) << service;
    EXPECT_EQ(HealthOf(server.channel(), service), kServing) << service;
  }
  EXPECT_EQ(CallRaw(channel, "GetCapabilities", "").status.error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  const std::string reflection =
      "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
  const std::string list_services("\x3a\x00", 2);
  EXPECT_EQ(CallStream(channel, reflection, list_services), "");
  EXPECT_NE(CallStream(server.channel(), reflection, list_services), "");
}

TEST(Readiness, ADrainingServerIsAliveAndWasStarted) {
  TestServer server;
  EXPECT_TRUE(server.server().Drain());
  EXPECT_EQ(HealthOf(server.channel(), "readiness"), kNotServing);
  for (const char* service : {"", "Sessions", "Networks", "Admin"}) {
    EXPECT_EQ(HealthOf(server.channel(),
                       absl::StrCat("convgrad.v1.ConvGrad", service)),
              kNotServing);
  }
  EXPECT_EQ(HealthOf(server.channel(), "liveness"), kServing);
  EXPECT_EQ(HealthOf(server.channel(), "startup"), kServing);
}

TEST(Readiness, WaitsForTheWarmup) {
  PuppetStrings strings;
  std::vector<RegisteredBackend> backends;
  backends.push_back(RegisteredPuppet("puppet", &strings));
  Config config = TestConfig();
  config.warmup_file = WriteFile("warmup", "# mine\n\nconv2d_n1_c1_o1_i3_k2\n");
  strings.HoldPlans();
  TestServer server(config, std::move(backends));
  EXPECT_EQ(HealthOf(server.channel(), "liveness"), kServing);
  for (const char* service : {"", "startup", "readiness"}) {
    EXPECT_EQ(HealthOf(server.channel(), service), kNotServing) << service;
  }
  strings.Release();
  AwaitHealth(server.channel(), "readiness", kServing);
  EXPECT_EQ(HealthOf(server.channel(), "startup"), kServing);
  EXPECT_GT(server.server().gauges().SumOf("convgrad_plan_cache_plans"), 0);
}

TEST(Readiness, AServerStopsInItsWarmup) {
  std::string problems;
  for (int size = 8; size < 200; ++size) {
    absl::StrAppend(&problems, "conv2d_n2_c16_o16_i", size, "_k3_p1\n");
  }
  Config config = TestConfig();
  config.warmup_file = WriteFile("warmup_long", problems);
  TestServer server(config);
  EXPECT_TRUE(server.server().Drain());
  server.Stop();
}

TEST(Readiness, RefusesAWarmupFileThatIsNone) {
  Config config = TestConfig();
  config.warmup_file = "/nowhere";
  EXPECT_EQ(DetailOf(Server::Start(config).status())->field, "--warmup_file");
  config.warmup_file = WriteFile("warmup_bad", "# mine\nconv9d\n");
  EXPECT_EQ(DetailOf(Server::Start(config).status())->field,
            "--warmup_file line 2: problem string");
}

TEST(Readiness, RefusesAWarmupFileThatWarmupWouldRefuse) {
  Config config = TestConfig();
  const auto expect_refused = [&](const std::string& text,
                                  absl::StatusCode code,
                                  absl::string_view field) {
    config.warmup_file = WriteFile("warmup_large", text);
    const absl::Status status = Server::Start(config).status();
    EXPECT_EQ(status.code(), code) << field;
    const auto detail = DetailOf(status);
    ASSERT_TRUE(detail) << status;
    EXPECT_EQ(detail->field, absl::StrCat("--warmup_file line ", field));
  };
  expect_refused("# mine\nconv2d_n1_c1_o1_i3_k2\nconv2d_n1_c1_o1_i3_k9\n",
                 absl::StatusCode::kInvalidArgument, "3: problem.kernel[0]");
  expect_refused("linear_n1_c1000000000_o1000000000\n",
                 absl::StatusCode::kResourceExhausted, "1: operation.problem");
  expect_refused("\nconv1d_n1_c1_o1_i1_k1000000000001_p500000000000\n",
                 absl::StatusCode::kResourceExhausted, "2: operation");
  std::string many = "# mine\n";
  for (int i = 0; i < 1001; ++i) absl::StrAppend(&many, "linear_n1_c1_o1\n");
  expect_refused(many, absl::StatusCode::kInvalidArgument, "1002: problems");
}

RawReply Warmup(const TestServer& server, const v1::WarmupRequest& request) {
  return CallRaw(server.channel(), "/convgrad.v1.ConvGradAdmin/Warmup",
                 request.SerializeAsString());
}

TEST(Warmup, MakesThePlansOfLaterCalls) {
  TestServer server;
  v1::WarmupRequest request;
  request.add_problems("conv2d_n1_c1_o1_i3_k2");
  request.add_dtypes(v1::DATA_TYPE_F32);
  request.add_layouts(v1::LAYOUT_NCX);
  v1::WarmupResponse response;
  ASSERT_TRUE(response.ParseFromString(Warmup(server, request).response));
  EXPECT_GE(response.plans(), 2);
  EXPECT_EQ(response.made(), response.plans());
  ASSERT_TRUE(response.ParseFromString(Warmup(server, request).response));
  EXPECT_GE(response.plans(), 2);
  EXPECT_EQ(response.made(), 0);
  v1::ConvForwardResponse forward;
  ASSERT_TRUE(forward.ParseFromString(CallRaw(server.channel(), "ConvForward",
                                              SeedForward().SerializeAsString())
                                          .response));
  EXPECT_TRUE(forward.report().plan_cache_hit());
  server.AwaitMetric(
      "grpc_server_handled_total{grpc_code=\"OK\",grpc_method=\"Warmup\","
      "grpc_service=\"convgrad.v1.ConvGradAdmin\",grpc_type=\"unary\"} 2");
}

TEST(Warmup, RefusesWhatItCannotRead) {
  TestServer server;
  const auto field = [&](const v1::WarmupRequest& request) {
    const RawReply reply = Warmup(server, request);
    EXPECT_EQ(reply.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    return reply.trailers.field;
  };
  v1::WarmupRequest request;
  request.add_problems("conv2d_n1_c1_o1_i3_k2");
  request.add_problems("conv2d_n1_c1_o1_i3_k9");
  EXPECT_TRUE(absl::StartsWith(field(request), "problems[1]."));
  request.clear_problems();
  for (const int dtype : {77, int{v1::DATA_TYPE_I64}}) {
    request.add_dtypes(static_cast<v1::DataType>(dtype));
    EXPECT_EQ(field(request), "dtypes");
    request.clear_dtypes();
  }
  for (int i = 0; i < 2; ++i) request.add_dtypes(v1::DATA_TYPE_F32);
  EXPECT_EQ(field(request), "dtypes");
  request.clear_dtypes();
  for (int i = 0; i < 2; ++i) request.add_layouts(v1::LAYOUT_NCX);
  EXPECT_EQ(field(request), "layouts");
  request.clear_layouts();
  request.add_layouts(v1::LAYOUT_OIX);
  EXPECT_EQ(field(request), "layouts");
  request.clear_layouts();
  for (int i = 0; i < 1001; ++i) request.add_problems("linear_n1_c1_o1");
  EXPECT_EQ(field(request), "problems");
}

TEST(Warmup, RefusesWhatNoCallMayHave) {
  TestServer server;
  v1::WarmupRequest request;
  request.add_problems("conv2d_n1_c1_o1_i3_k2");
  request.add_problems("");
  for (const auto& [problem, field] :
       {std::pair{"linear_n1_c1000000000_o1000000000",
                  "problems[1].operation.problem"},
        // One tap sees the input.
        {"conv1d_n1_c1_o1_i1_k1000000000001_p500000000000",
         "problems[1].operation"}}) {
    request.set_problems(1, problem);
    const RawReply reply = Warmup(server, request);
    EXPECT_EQ(reply.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_EQ(reply.trailers.reason, "LIMIT_EXCEEDED");
    EXPECT_EQ(reply.trailers.field, field);
  }
}

TEST(ConnectionAge, ConnectionsEndAndTheirCallsDoNot) {
  PuppetStrings strings;
  std::vector<RegisteredBackend> backends;
  backends.push_back(RegisteredPuppet("puppet", &strings));
  Config config = TestConfig();
  config.max_connection_age = absl::Milliseconds(100);
  TestServer server(config, std::move(backends));
  strings.HoldRuns();
  RawReply reply;
  std::thread caller([&] {
    reply = CallRaw(server.channel(), "ConvBackward",
                    SeedBackward().SerializeAsString());
  });
  strings.AwaitRuns(1);
  // The channel knows that it must start no more calls on this connection.
  EXPECT_TRUE(server.channel()->WaitForStateChange(
      GRPC_CHANNEL_READY, absl::ToChronoTime(absl::Now() + absl::Seconds(60))));
  strings.Release();
  caller.join();
  EXPECT_TRUE(reply.status.ok()) << reply.status.error_message();
}

TEST(Reload, TakesOverLimitsAndKeepsGoingOnBadOnes) {
  const std::string path = WriteFile("reload.flags", "--log_level=info\n");
  ChildServer server({absl::StrCat("--flagfile=", path)});
  const auto channel = ChannelTo(server.address());
  const auto call = [&] {
    return CallRaw(channel, "ConvBackward", SeedBackward().SerializeAsString());
  };
  EXPECT_TRUE(call().status.ok());
  WriteFile("reload.flags", "--max_client_bytes=many\n");
  server.Signal(SIGHUP);
  EXPECT_TRUE(call().status.ok());
  WriteFile("reload.flags", "--max_client_bytes=1\n");
  const absl::Time limit = absl::Now() + absl::Seconds(60);
  RawReply reply;
  do {
    server.Signal(SIGHUP);
    reply = call();
  } while (reply.status.ok() && absl::Now() < limit);
  EXPECT_EQ(reply.trailers.reason, "LIMIT_EXCEEDED");
  // --version isn't a set of flags, so the limit stays the same.
  WriteFile("reload.flags", "--version\n");
  server.Signal(SIGHUP);
  EXPECT_EQ(call().trailers.reason, "LIMIT_EXCEEDED");
  server.Signal(SIGTERM);
  const Exit exit = server.Await();
  EXPECT_EQ(exit.code, 0) << exit.output;
  EXPECT_TRUE(absl::StrContains(exit.output,
                                "max_client_bytes; other flags need a restart"))
      << exit.output;
  EXPECT_TRUE(absl::StrContains(exit.output,
                                "nothing reloaded: found --help or --version"))
      << exit.output;
}

TEST(Crash, LeavesNothingInTheWayOfTheNextStart) {
  const std::string socket =
      absl::StrCat("unix:", testing::TempDir(), "/convgrad_crash.sock");
  const std::string regions =
      absl::StrCat("unix:", testing::TempDir(), "/convgrad_crash_regions.sock");
  for (int i = 0; i < 2; ++i) {
    ChildServer server({absl::StrCat("--listen=", socket),
                        absl::StrCat("--regions_listen=", regions)});
    EXPECT_TRUE(CallRaw(ChannelTo(socket), "GetCapabilities", "").status.ok());
    server.Signal(SIGKILL);
    EXPECT_EQ(server.Await().code, -1);
  }
}

}  // namespace
}  // namespace convgrad
