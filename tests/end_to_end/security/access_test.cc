// Tests which clients may make which calls, and how many at once.
#include <signal.h>

#include <fstream>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "backends/core/status.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/peers/child_server.h"
#include "tests/end_to_end/peers/test_server.h"
#include "tests/server/scheduling/puppet_backend.h"

namespace convgrad {
namespace {

constexpr char kInfer[] = "infer-infer-infer-infer";
constexpr char kTrain[] = "train-train-train-train";
constexpr char kAdmin[] = "admin-admin-admin-admin";

class Access : public testing::Test {
 protected:
  Access() { path_ = absl::StrCat(testing::TempDir(), "/convgrad.tokens"); }

  void WriteTokens(const std::string& text) {
    std::ofstream(path_ + ".part") << text;
    rename((path_ + ".part").c_str(), path_.c_str());
  }

  Config ConfigWith(const std::string& tokens) {
    WriteTokens(tokens);
    Config config = TestConfig();
    config.token_file = path_;
    return config;
  }

  static RawReply Call(const TestServer& server, const std::string& method,
                       const std::string& token) {
    std::map<std::string, std::string> metadata;
    if (!token.empty()) metadata["authorization"] = "Bearer " + token;
    const std::string message =
        method == "ConvForward"    ? SeedForward().SerializeAsString()
        : method == "ConvBackward" ? SeedBackward().SerializeAsString()
                                   : "";
    return CallRaw(server.channel(), method, message, metadata);
  }

  // Calls until the answer has `code`. Fails the test if that never happens.
  static void AwaitCode(const TestServer& server, const std::string& token,
                        grpc::StatusCode code) {
    const absl::Time limit = absl::Now() + absl::Seconds(60);
    RawReply reply;
    do {
      reply = Call(server, "GetCapabilities", token);
      if (reply.status.error_code() == code) return;
      absl::SleepFor(absl::Milliseconds(20));
    } while (absl::Now() < limit);
    ADD_FAILURE() << reply.status.error_message();
  }

  std::string path_;
};

std::string AllRoles() {
  return absl::StrCat("# who\n\nserving infer ", kInfer, "\ntrainer\ttrain  ",
                      kTrain, "\noperator admin ", kAdmin, "\n");
}

TEST_F(Access, EachTokenOpensItsMethods) {
  TestServer server(ConfigWith(AllRoles()));
  constexpr auto kIn = grpc::StatusCode::OK;
  constexpr auto kForbidden = grpc::StatusCode::PERMISSION_DENIED;
  // A stream that the gate admits fails for lack of a header.
  constexpr auto kStreamIn = grpc::StatusCode::INVALID_ARGUMENT;
  struct Row {
    const char* method;
    grpc::StatusCode infer;
    grpc::StatusCode train;
    grpc::StatusCode admin;
  };
  for (const Row& row :
       {Row{"GetCapabilities", kIn, kIn, kIn},
        Row{"ConvForward", kIn, kIn, kIn},
        Row{"ConvBackward", kForbidden, kIn, kIn},
        Row{"ConvForwardStream", kStreamIn, kStreamIn, kStreamIn},
        Row{"ConvBackwardStream", kForbidden, kStreamIn, kStreamIn},
        Row{"/convgrad.v1.ConvGradAdmin/Warmup", kForbidden, kForbidden,
            kIn}}) {
    const auto code = [&](const std::string& token) {
      return Call(server, row.method, token).status.error_code();
    };
    EXPECT_EQ(code(kInfer), row.infer) << row.method;
    EXPECT_EQ(code(kTrain), row.train) << row.method;
    EXPECT_EQ(code(kAdmin), row.admin) << row.method;
    for (const char* token : {"", "nobody-nobody-nobody", "infer"}) {
      EXPECT_EQ(code(token), grpc::StatusCode::UNAUTHENTICATED)
          << row.method << " " << token;
    }
  }
  EXPECT_EQ(Call(server, "NoSuchMethod", "").status.error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(Access, RefusalsSayWhyInTheTrailer) {
  TestServer server(ConfigWith(AllRoles()));
  RawReply reply = Call(server, "ConvBackward", kInfer);
  EXPECT_EQ(reply.trailers.reason, "FORBIDDEN");
  EXPECT_EQ(reply.trailers.found, "infer");
  EXPECT_EQ(reply.trailers.expected, "train");
  reply = Call(server, "ConvBackward", "nobody-nobody-nobody");
  EXPECT_EQ(reply.trailers.reason, "UNAUTHENTICATED");
  EXPECT_EQ(reply.trailers.found, "an unknown token");
  reply = CallRaw(server.channel(), "ConvBackward", "",
                  {{"authorization", absl::StrCat("Basic ", kAdmin)}});
  EXPECT_EQ(reply.trailers.found, "another scheme");
  server.AwaitMetric("convgrad_rejections_total{reason=\"FORBIDDEN\"} 1");
  server.AwaitMetric("convgrad_rejections_total{reason=\"UNAUTHENTICATED\"} 2");
}

TEST_F(Access, HealthNeedsNoTokenAndReflectionIsOff) {
  TestServer server(ConfigWith(AllRoles()));
  EXPECT_TRUE(CallRaw(server.channel(), "/grpc.health.v1.Health/Check", "")
                  .status.ok());
  // The message is ServerReflectionRequest{list_services}.
  EXPECT_EQ(CallStream(server.channel(),
                       "/grpc.reflection.v1alpha.ServerReflection/"
                       "ServerReflectionInfo",
                       std::string("\x3a\x00", 2)),
            "");
}

TEST_F(Access, TokensAreReadAgain) {
  TestServer server(ConfigWith(AllRoles()));
  WriteTokens("serving infer another-another-another\n");
  AwaitCode(server, "another-another-another", grpc::StatusCode::OK);
  EXPECT_EQ(Call(server, "GetCapabilities", kInfer).status.error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
  // An empty file admits no client.
  WriteTokens("");
  AwaitCode(server, "another-another-another",
            grpc::StatusCode::UNAUTHENTICATED);
  WriteTokens("bad\n");
  // Each reload names the error, also if the server has told it before.
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(server.server().Reload(server.server().config()).ok());
  }
}

TEST_F(Access, RefusesBadTokenFiles) {
  for (const char* line :
       {"name train", "name teach token-token-token-token", "name train short",
        "name train token-token-token-token stray"}) {
    const absl::Status status =
        Server::Start(ConfigWith(absl::StrCat("\n", line, "\n"))).status();
    ASSERT_TRUE(DetailOf(status).has_value()) << line;
    EXPECT_EQ(DetailOf(status)->field, "--token_file line 2") << status;
    EXPECT_FALSE(absl::StrContains(status.message(), "token-token")) << status;
  }
  Config config = TestConfig();
  config.token_file = "/nowhere";
  EXPECT_EQ(DetailOf(Server::Start(config).status())->field, "--token_file");
}

TEST_F(Access, AClientHasSoManyCallsAndBytes) {
  PuppetStrings strings;
  std::vector<RegisteredBackend> backends;
  backends.push_back(RegisteredPuppet("puppet", &strings));
  Config config = ConfigWith(AllRoles());
  config.max_client_calls = 1;
  config.max_client_bytes = 100'000;
  TestServer server(config, std::move(backends));
  // A call without a declared size counts as the largest message.
  RawReply reply = Call(server, "ConvBackward", kTrain);
  EXPECT_EQ(reply.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(reply.trailers.reason, "LIMIT_EXCEEDED");
  EXPECT_EQ(reply.trailers.field, "client 'trainer'");
  EXPECT_EQ(reply.trailers.pushback_ms, "");

  strings.HoldRuns();
  const auto call = [&](const char* token) {
    return CallRaw(server.channel(), "ConvBackward",
                   SeedBackward().SerializeAsString(),
                   {{"authorization", absl::StrCat("Bearer ", token)},
                    {"convgrad-request-bytes", "1000"}});
  };
  RawReply first;
  std::thread caller([&] { first = call(kTrain); });
  strings.AwaitRuns(1);
  reply = call(kTrain);
  EXPECT_EQ(reply.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(reply.trailers.reason, "BUSY");
  EXPECT_EQ(reply.trailers.found, "1 calls under way");
  EXPECT_NE(reply.trailers.pushback_ms, "");
  server.AwaitMetric("convgrad_priority_busy_total{priority=\"batch\"} 1");
  RawReply other;
  std::thread another([&] { other = call(kAdmin); });
  // Both calls are admitted: the running one, and that of the other client.
  while (server.server().gauges().SumOf("convgrad_queue_depth") < 1)
    std::this_thread::yield();
  strings.Release();
  caller.join();
  another.join();
  EXPECT_TRUE(first.status.ok()) << first.status.error_message();
  EXPECT_TRUE(other.status.ok()) << other.status.error_message();
  // The bytes that the call held are free again.
  reply = call(kTrain);
  EXPECT_TRUE(reply.status.ok()) << reply.status.error_message();
}

TEST_F(Access, BytesUnderWayAreAddedUp) {
  PuppetStrings strings;
  std::vector<RegisteredBackend> backends;
  backends.push_back(RegisteredPuppet("puppet", &strings));
  Config config = TestConfig();  // Without tokens a host is a client.
  config.max_client_bytes = 100'000;
  TestServer server(config, std::move(backends));
  strings.HoldRuns();
  const auto call = [&] {
    return CallRaw(server.channel(), "ConvBackward",
                   SeedBackward().SerializeAsString(),
                   {{"convgrad-request-bytes", "1000"}});
  };
  RawReply first;
  std::thread caller([&] { first = call(); });
  strings.AwaitRuns(1);
  const RawReply second = call();
  EXPECT_EQ(second.trailers.reason, "BUSY");
  EXPECT_TRUE(absl::StrContains(second.trailers.field, "127.0.0.1"))
      << second.trailers.field;
  strings.Release();
  caller.join();
  EXPECT_TRUE(first.status.ok()) << first.status.error_message();
}

TEST_F(Access, NothingSecretIsLoggedOrCounted) {
  WriteTokens(AllRoles());
  ChildServer server(
      {absl::StrCat("--token_file=", path_), "--log_level=debug"});
  const auto channel =
      grpc::CreateChannel(server.address(), grpc::InsecureChannelCredentials());
  for (const char* token : {kInfer, kTrain, "nobody-nobody-nobody"}) {
    CallRaw(channel, "ConvBackward", SeedBackward().SerializeAsString(),
            {{"authorization", absl::StrCat("Bearer ", token)}});
  }
  const std::string metrics = HttpGet(server.metrics_port(), "/metrics");
  EXPECT_TRUE(absl::StrContains(metrics, "PermissionDenied"));
  server.Signal(SIGTERM);
  const std::string log = server.Await().output;
  for (const char* line :
       {"call method=ConvBackward client=\"trainer\" code=OK seconds=",
        "call method=ConvBackward client=\"\" peer=\"ipv4:127.0.0.1:"}) {
    EXPECT_TRUE(absl::StrContains(log, line)) << log;
  }
  EXPECT_TRUE(absl::StrContains(log, "cause=\"authorization: found an unknown"))
      << log;
  for (const char* secret : {kInfer, kTrain, kAdmin, "nobody-nobody-nobody"}) {
    EXPECT_FALSE(absl::StrContains(log, secret)) << log;
    EXPECT_FALSE(absl::StrContains(metrics, secret));
  }
}

}  // namespace
}  // namespace convgrad
