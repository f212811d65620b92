// The program: flags, signals, exit statuses.
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/cpp/client.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/child_server.h"
#include "tests/end_to_end/raw_http2.h"
#include "tests/end_to_end/test_server.h"

namespace convgrad {
namespace {

TEST(Process, SaysItsVersion) {
  const Exit exit = RunServer({"--version"});
  EXPECT_EQ(exit.code, 0);
  EXPECT_EQ(exit.output, absl::StrCat(Version(), "\n"));
}

TEST(Process, HelpNamesFlagsAndTheConfigFile) {
  const Exit exit = RunServer({"--help"});
  for (const char* part : {"--listen", "--memory_budget_bytes", "--drain_delay",
                           "--healthcheck", "--flagfile"}) {
    EXPECT_TRUE(absl::StrContains(exit.output, part)) << exit.output;
  }
}

TEST(Process, RefusesBadFlagsInOneLine) {
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"--workers=-1"},
        {"--listen=nowhere"},
        {"--log_level=loud"},
        {"stray"}}) {
    const Exit exit = RunServer(flags);
    EXPECT_EQ(exit.code, 2) << exit.output;
    EXPECT_TRUE(absl::StrContains(exit.output, "expected")) << exit.output;
    EXPECT_EQ(exit.output.find('\n'), exit.output.size() - 1) << exit.output;
  }
  EXPECT_EQ(RunServer({"--no_such_flag=1"}).code, 1);
}

TEST(Process, DrainsAndEndsWellOnSignals) {
  for (int signal : {SIGTERM, SIGINT}) {
    ChildServer server({});
    EXPECT_EQ(RunServer({"--healthcheck",
                         absl::StrCat("--listen=", server.address())})
                  .code,
              0);
    const auto channel = grpc::CreateChannel(
        server.address(), grpc::InsecureChannelCredentials());
    EXPECT_TRUE(
        CallRaw(channel, "ConvBackward", SeedBackward().SerializeAsString())
            .status.ok());
    server.Signal(signal);
    const Exit exit = server.Await();
    EXPECT_EQ(exit.code, 0) << exit.output;
    EXPECT_TRUE(absl::StrContains(exit.output, "draining")) << exit.output;
    EXPECT_TRUE(absl::StrContains(exit.output, "stopped")) << exit.output;
    EXPECT_EQ(RunServer({"--healthcheck",
                         absl::StrCat("--listen=", server.address())})
                  .code,
              1);
  }
}

TEST(Process, DrainsAndEndsWellBesideClientsThatDoNothing) {
  ChildServer server({"--drain_timeout=2s"});
  const std::string message = SeedBackward().SerializeAsString();
  const std::string method = "/convgrad.v1.ConvGrad/ConvBackward";
  RawHttp2 client(server.address(), 0);  // no window: it takes no answer
  const uint32_t answered = client.Open(method);
  client.SendMessage(answered, message);
  client.Finish(answered);
  server.AwaitMetric(
      "grpc_server_handled_total{grpc_code=\"OK\",grpc_method="
      "\"ConvBackward\",grpc_service=\"convgrad.v1.ConvGrad\","
      "grpc_type=\"unary\"} 1");
  client.BeginMessage(client.Open(method), 1 << 20);
  client.Open(method + "Stream");
  server.AwaitMetric(
      "grpc_server_started_total{grpc_method=\"ConvBackwardStream\","
      "grpc_service=\"convgrad.v1.ConvGrad\","
      "grpc_type=\"bidi_stream\"} 1");
  server.Signal(SIGTERM);
  const Exit exit = server.Await();
  EXPECT_EQ(exit.code, 0) << exit.output;
}

TEST(Process, StopsAtOnceWhenToldTwice) {
  ChildServer server({"--drain_delay=5m"});
  server.Signal(SIGTERM);
  server.Signal(SIGINT);
  const Exit exit = server.Await();
  EXPECT_EQ(exit.code, 1) << exit.output;
}

TEST(Process, ReadsAConfigFile) {
  const std::string path = absl::StrCat(testing::TempDir(), "/convgrad.flags");
  std::ofstream(path) << "--max_message_bytes=1000\n--metrics_listen=\n";
  ChildServer server({absl::StrCat("--flagfile=", path)});
  EXPECT_EQ(server.metrics_port(), 0);
  const auto channel =
      grpc::CreateChannel(server.address(), grpc::InsecureChannelCredentials());
  const RawReply reply = CallRaw(channel, "GetCapabilities", "");
  v1::GetCapabilitiesResponse response;
  ASSERT_TRUE(response.ParseFromString(reply.response));
  EXPECT_EQ(response.limits().max_message_bytes(), 1000);
}

// Returns the formats of a backward's passes, as a server reports them.
std::vector<std::string> FormatsOf(const std::string& address,
                                   const char* problem) {
  OperationCall call;
  call.operation = WholeOperation(*Parse(problem), Direction::kBackward,
                                  DataType::kF32, Layout::kNCX);
  std::vector<std::string> memory;
  memory.reserve(kOperandCount);  // spans into it stay
  for (Operand which : kAllOperands) {
    const auto& tensor = call.operation.operand(which);
    if (!tensor) continue;
    memory.emplace_back(*ByteSize(*tensor), '\0');
    call.operands[static_cast<size_t>(which)] = absl::MakeConstSpan(
        reinterpret_cast<const std::byte*>(memory.back().data()),
        memory.back().size());
  }
  const auto client = Client::Connect({address});
  const auto reply = (*client)->Run(call);
  EXPECT_TRUE(reply.ok()) << reply.status();
  if (!reply.ok()) return {};
  std::vector<std::string> formats;
  for (absl::string_view pass :
       absl::StrSplit(reply->report.implementation(), ' ')) {
    formats.emplace_back(pass.substr(pass.rfind('/') + 1));
  }
  return formats;
}

TEST(Process, TunesAndFollowsThePlanFile) {
  const std::string problems = absl::StrCat(testing::TempDir(), "/problems");
  const std::string plans = absl::StrCat(testing::TempDir(), "/plans");
  std::ofstream(problems) << "# two\n\nconv2d_n1_c8_o8_i8_k3_p1\n"
                          << "convtranspose1d_n2_c4_o6_i7_k2_s2\n";
  const std::string file = absl::StrCat("--plan_file=", plans);
  const Exit tuned = RunServer({absl::StrCat("--tune=", problems), file});
  EXPECT_EQ(tuned.code, 0) << tuned.output;
  EXPECT_TRUE(absl::StrContains(tuned.output, "2 of 2")) << tuned.output;
  std::ostringstream text;
  text << std::ifstream(plans).rdbuf();
  EXPECT_TRUE(absl::StrContains(text.str(), "onednn: backward_weight "))
      << text.str();
  // A choice that the heuristics wouldn't make for both passes shows that the
  // file counts.
  for (const char* format : {"ncx", "nxc"}) {
    const std::string choice = absl::StrCat(" = ", format);
    std::ofstream(plans) << absl::StrReplaceAll(
        text.str(),
        {{" = any", choice}, {" = nxc", choice}, {" = ncx", choice}});
    ChildServer server({file});
    EXPECT_EQ(FormatsOf(server.address(), "conv2d_n1_c8_o8_i8_k3_p1"),
              std::vector<std::string>({format, format}));
  }
}

TEST(Process, FindsThePlanFileOfItsMachine) {
  const std::string folder = absl::StrCat(testing::TempDir(), "/own_plans");
  std::filesystem::create_directories(folder);
  const std::string problems = absl::StrCat(folder, "/problems");
  const std::string plans = absl::StrCat(folder, "/own.plan");
  std::ofstream(problems) << "conv2d_n1_c8_o8_i8_k3_p1\n";
  const Exit tuned = RunServer({absl::StrCat("--tune=", problems),
                                absl::StrCat("--plan_file=", plans),
                                "--threads_per_worker=1"});
  ASSERT_EQ(tuned.code, 0) << tuned.output;
  const std::string found = absl::StrCat("--plan_file=auto:", folder);
  const Exit unnamed = RunServer({absl::StrCat("--tune=", problems), found});
  EXPECT_EQ(unnamed.code, 2);
  EXPECT_TRUE(absl::StrContains(unnamed.output, "the file that --tune"))
      << unnamed.output;
  for (const auto& [threads, said] :
       {std::pair("--threads_per_worker=1", absl::StrCat("follow ", plans)),
        std::pair("--threads_per_worker=2",
                  absl::StrCat(folder, " has no plan file for "))}) {
    ChildServer server({found, threads});
    server.Signal(SIGTERM);
    const Exit exit = server.Await();
    EXPECT_TRUE(absl::StrContains(exit.output, said)) << exit.output;
    EXPECT_FALSE(absl::StrContains(exit.output, "warning")) << exit.output;
  }
}

TEST(Process, RefusesBadTuningInOneLine) {
  const std::string bad = absl::StrCat(testing::TempDir(), "/bad");
  std::ofstream(bad) << "conv2d_nine\n";
  const std::string plans = absl::StrCat("--plan_file=", bad);
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"--tune=/nowhere", plans},
        {absl::StrCat("--tune=", bad)},
        {absl::StrCat("--tune=", bad), absl::StrCat(plans, ".out")},
        {"--plan_file=/nowhere"},
        {"--plan_file=/"},
        {plans}}) {
    const Exit exit = RunServer(flags);
    EXPECT_EQ(exit.code, 2) << exit.output;
    EXPECT_TRUE(absl::StrContains(exit.output, "expected")) << exit.output;
  }
}

TEST(Process, HealthCheckReachesUnixSockets) {
  const std::string listen = absl::StrCat("--listen=unix:", testing::TempDir(),
                                          "/convgrad_probe.sock");
  ChildServer server({listen});
  EXPECT_EQ(RunServer({"--healthcheck", listen}).code, 0);
}

}  // namespace
}  // namespace convgrad
