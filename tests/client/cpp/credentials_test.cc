#include "client/cpp/credentials.h"

#include <string>

#include "absl/status/status.h"
#include "backends/core/status.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

TEST(Credentials, FollowsTheAdvertisedAddress) {
  EXPECT_EQ(*FollowedServer("servers:7070", ""), "servers:7070");
  EXPECT_EQ(*FollowedServer("servers:7070", "server-0.servers:7070"),
            "server-0.servers:7070");
  EXPECT_EQ(*FollowedServer("ipv4:10.0.0.1:1", "[fd00::1]:7070"),
            "[fd00::1]:7070");
  EXPECT_EQ(*FollowedServer("unix-gpu.test:7070", "server-0.servers:7070"),
            "server-0.servers:7070");
}

TEST(Credentials, StaysOnThisHost) {
  EXPECT_EQ(*FollowedServer("localhost:7070", "server-0.servers:7070"),
            "localhost:7070");
  EXPECT_EQ(*FollowedServer("127.0.0.1:7070", "127.evil.test:7070"),
            "127.0.0.1:7070");
  EXPECT_EQ(*FollowedServer("unix:/run/x.sock", "localhost:7070"),
            "unix:/run/x.sock");
  EXPECT_EQ(*FollowedServer("localhost:7070", "127.0.0.1:7071"),
            "127.0.0.1:7071");
}

TEST(Credentials, RefusesMoreThanHostAndPort) {
  for (const std::string& advertised :
       {std::string("server"), std::string("server:0"),
        std::string("server:65536"), std::string("unix:/run/x.sock"),
        std::string("unix:70"), std::string("ipv4:10.0.0.1:1"),
        std::string("dns:server:1"), std::string("a b:1"),
        std::string("a:1,b:1"), std::string("fd00::1:7070"),
        std::string("server\n:1"), std::string("server:07070"),
        std::string("..:1"), std::string("\xff:1"),
        std::string(1 << 24, 'a') + ":1"}) {
    const auto followed = FollowedServer("servers:7070", advertised);
    EXPECT_TRUE(absl::IsInternal(followed.status())) << followed.status();
    EXPECT_EQ(DetailOf(followed.status())->field, "reply.address");
    EXPECT_LT(DetailOf(followed.status())->found.size(), 400);
  }
}

TEST(Credentials, SendsTokensInPlaintextOnlyToThisHost) {
  for (const char* server : {"localhost:1", "127.0.0.1:1", "unix:/run/x"}) {
    EXPECT_TRUE(MakeCredentials({.server = server, .token = "t"}).ok());
  }
  for (const char* server :
       {"server:1", "127.evil.test:1", "127.0.0.1.x:1", "127.999.0.1:1"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(
        MakeCredentials({.server = server, .token = "t"}).status()));
  }
}

}  // namespace
}  // namespace convgrad
