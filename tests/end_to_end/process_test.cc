// Tests the server program: flags, signals, exit statuses.
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/client.h"
#include "convgrad/v1/service.grpc.pb.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/peers/child_server.h"
#include "tests/end_to_end/peers/raw_http2.h"
#include "tests/end_to_end/peers/temporary_folder.h"
#include "tests/end_to_end/peers/test_server.h"
#include "tests/end_to_end/sessions/session_client.h"

namespace convgrad {
namespace {

TEST(Process, SaysItsVersion) {
  const Exit exit = RunServer({"--version"});
  EXPECT_EQ(exit.code, 0);
  EXPECT_EQ(exit.output, absl::StrCat(Version(), "\n"));
}

TEST(Process, HelpNamesFlagsAndTheConfigFile) {
  const Exit exit = RunServer({"--help"});
  EXPECT_EQ(exit.code, 0);
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
        {"--workers=many"},
        {"--blah"},
        {"stray"}}) {
    const Exit exit = RunServer(flags);
    EXPECT_EQ(exit.code, 2) << exit.output;
    EXPECT_TRUE(absl::StrContains(exit.output, "expected")) << exit.output;
    EXPECT_EQ(exit.output.find('\n'), exit.output.size() - 1) << exit.output;
  }
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
  // No window: the client takes no answer.
  RawHttp2 client(server.address(), 0);
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

TEST(Process, OutlivesTheReaderOfItsLog) {
  // Without --metrics_listen, civetweb doesn't ignore SIGPIPE.
  ChildServer server({"--metrics_listen="});
  server.CloseOutput();
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Await().code, 0);
}

TEST(Process, OutlivesALimitOfFileSizes) {
  const TemporaryFolder folder;
  ChildServer server({absl::StrCat("--state_dir=", folder.path(), "/state")});
  const rlimit none = {0, 0};
  ASSERT_EQ(prlimit(server.process(), RLIMIT_FSIZE, &none, nullptr), 0);
  v1::OpenSessionRequest request;
  request.set_open_id(std::string(16, 'o'));
  request.set_durable(true);
  grpc::ClientContext context;
  v1::SessionResponse response;
  const auto stub = v1::ConvGradSessions::NewStub(grpc::CreateChannel(
      server.address(), grpc::InsecureChannelCredentials()));
  EXPECT_EQ(stub->OpenSession(&context, request, &response).error_code(),
            grpc::StatusCode::INTERNAL);
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Await().code, 0);
}

TEST(Process, SaysThatADurableSessionIsNotOnDisk) {
  const TemporaryFolder folder;
  ChildServer server({absl::StrCat("--state_dir=", folder.path(), "/state")});
  const auto stub = v1::ConvGradSessions::NewStub(grpc::CreateChannel(
      server.address(), grpc::InsecureChannelCredentials()));
  v1::OpenSessionRequest request;
  request.set_open_id(std::string(16, 'o'));
  request.set_durable(true);
  v1::SessionResponse opened;
  grpc::ClientContext open;
  ASSERT_TRUE(stub->OpenSession(&open, request, &opened).ok());
  const rlimit none = {0, 0};
  ASSERT_EQ(prlimit(server.process(), RLIMIT_FSIZE, &none, nullptr), 0);
  // The new epoch is a change.
  v1::ResumeSessionRequest resume;
  resume.set_session_id(opened.session_id());
  grpc::ClientContext context;
  EXPECT_TRUE(stub->ResumeSession(&context, resume, &opened).ok());
  server.Signal(SIGTERM);
  const Exit exit = server.Await();
  EXPECT_EQ(exit.code, 1) << exit.output;
  EXPECT_TRUE(absl::StrContains(exit.output,
                                "changes of durable sessions aren't on disk"))
      << exit.output;
  EXPECT_TRUE(absl::EndsWith(exit.output, "stopped\n")) << exit.output;
}

TEST(Process, ReadsAPipeOfFlagsOnce) {
  const TemporaryFolder folder;
  const std::string pipe = absl::StrCat(folder.path(), "/flags");
  ASSERT_EQ(mkfifo(pipe.c_str(), S_IRUSR | S_IWUSR), 0);
  std::thread writer([&] { std::ofstream(pipe) << "--metrics_listen=\n"; });
  ChildServer server({absl::StrCat("--flagfile=", pipe)});
  writer.join();
  EXPECT_EQ(server.metrics_port(), 0);
  server.Signal(SIGHUP);
  server.Signal(SIGTERM);
  const Exit exit = server.Await();
  unlink(pipe.c_str());
  EXPECT_EQ(exit.code, 0) << exit.output;
  EXPECT_TRUE(absl::StrContains(exit.output, "nothing reloaded: --flagfile"))
      << exit.output;
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

TEST(Process, RefusesAFlagThatDoesNotExist) {
  for (const char* flag : {"--tune=/nowhere", "--plan_file=auto", "--blah"}) {
    const Exit exit = RunServer({flag});
    EXPECT_EQ(exit.code, 2) << exit.output;
    EXPECT_TRUE(absl::StrContains(exit.output, "Unknown command line flag"))
        << exit.output;
  }
}

TEST(Process, HealthCheckReachesUnixSockets) {
  const std::string listen = absl::StrCat("--listen=unix:", testing::TempDir(),
                                          "/convgrad_probe.sock");
  ChildServer server({listen});
  EXPECT_EQ(RunServer({"--healthcheck", listen}).code, 0);
}

TEST(Process, ItsPauseEndsNoSession) {
  ChildServer server({"--metrics_listen=127.0.0.1:0"});
  v1::OpenSessionRequest open;
  open.set_lease_seconds(3);
  SessionClient session(
      grpc::CreateChannel(server.address(), grpc::InsecureChannelCredentials()),
      open);
  server.Signal(SIGSTOP);
  absl::SleepFor(absl::Seconds(4));
  server.Signal(SIGCONT);
  EXPECT_TRUE(session.List().status.ok());
  server.AwaitMetric("convgrad_sessions 0");
}

}  // namespace
}  // namespace convgrad
