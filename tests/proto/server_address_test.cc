#include "proto/server_address.h"

#include <string>

#include "gtest/gtest.h"

namespace convgrad {
namespace {

TEST(ServerAddress, TakesNamesAndAddressesWithPorts) {
  for (const std::string& address :
       {std::string("server-0.servers.ns:7070"), std::string("my_host.:1"),
        std::string("10.0.0.1:65535"), std::string("[fd00::1]:7070"),
        std::string("[::ffff:10.0.0.1]:1"), std::string(63, 'a') + ".b:1"}) {
    EXPECT_TRUE(IsHostAndPort(address)) << address;
  }
}

TEST(ServerAddress, RefusesWhatDnsOrGrpcWouldReadInAnotherWay) {
  for (const std::string& address : {std::string(),
                                     std::string(":"),
                                     std::string("server"),
                                     std::string("server:"),
                                     std::string("server:0"),
                                     std::string("server:65536"),
                                     std::string("server:07070"),
                                     std::string("server:99999999999999999999"),
                                     std::string("server:+1"),
                                     std::string("..:1"),
                                     std::string("a..b:1"),
                                     std::string(".:1"),
                                     std::string("[.]:1"),
                                     std::string("[]:1"),
                                     std::string("[::1:1"),
                                     std::string("[::1]x:1"),
                                     std::string("[1::2::3]:1"),
                                     std::string("::1:1"),
                                     std::string("unix:70"),
                                     std::string("dns:70"),
                                     std::string("ipv4:70"),
                                     std::string("dns:a:1"),
                                     std::string("a,b:1"),
                                     std::string("a b:1"),
                                     std::string("a\0b:1", 6),
                                     std::string("\xe9:1"),
                                     std::string(64, 'a') + ":1",
                                     std::string(254, 'a') + ":1"}) {
    EXPECT_FALSE(IsHostAndPort(address)) << address;
  }
  std::string long_name;
  for (int i = 0; i < 127; ++i) long_name += "a.";
  EXPECT_FALSE(IsHostAndPort(long_name + "ab:1"));
  EXPECT_TRUE(IsHostAndPort(long_name.substr(0, 252) + "b:1"));
}

TEST(ServerAddress, KnowsTheOtherSchemesOfGrpc) {
  EXPECT_TRUE(HasOtherScheme("unix:/run/convgrad.sock"));
  EXPECT_TRUE(HasOtherScheme("ipv6:[::1]:1,[::1]:2"));
  EXPECT_FALSE(HasOtherScheme("unix-gpu.test:1"));
  EXPECT_FALSE(HasOtherScheme("dns:///server:1"));
}

}  // namespace
}  // namespace convgrad
