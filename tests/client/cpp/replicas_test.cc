#include "client/cpp/replicas.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/cpp/stand_in_dns.h"

namespace convgrad {
namespace {

using ::testing::ElementsAre;

// Returns each replica as SERVER, or SERVER as NAME.
std::vector<std::string> Replicas(const std::string& server,
                                  const std::string& server_name = "") {
  ClientOptions options;
  options.server = server;
  options.server_name = server_name;
  options.token = std::string("t");
  std::vector<std::string> found;
  for (const ClientOptions& one : ReplicasOf(options)) {
    EXPECT_EQ(one.token, "t");
    found.push_back(one.server_name.empty()
                        ? one.server
                        : absl::StrCat(one.server, " as ", one.server_name));
  }
  return found;
}

TEST(Replicas, ANameStandsForItsAddresses) {
  SetAddresses("two.test", {"10.0.0.1", "10.0.0.2", "10.0.0.1"});
  EXPECT_THAT(Replicas("two.test:7070"),
              ElementsAre("ipv4:10.0.0.1:7070 as two.test",
                          "ipv4:10.0.0.2:7070 as two.test"));
  EXPECT_THAT(
      Replicas("dns:///two.test:7070", "pool"),
      ElementsAre("ipv4:10.0.0.1:7070 as pool", "ipv4:10.0.0.2:7070 as pool"));
}

TEST(Replicas, AnAddressOfEachFamilyIsOneServer) {
  SetAddresses("one.test", {"fd00::1", "10.0.0.1"});
  EXPECT_THAT(Replicas("one.test:7070"), ElementsAre("one.test:7070"));
  SetAddresses("six.test", {"fd00::1", "fd00::2"});
  EXPECT_THAT(Replicas("six.test:7070"),
              ElementsAre("ipv6:[fd00::1]:7070 as six.test",
                          "ipv6:[fd00::2]:7070 as six.test"));
}

TEST(Replicas, AddressesStay) {
  SetAddresses("localhost", {"10.0.0.1", "10.0.0.2"});
  SetAddresses("none.test", {});
  for (const char* server :
       {"localhost:7070", "127.0.0.1:7070", "unix:/run/convgrad.sock",
        "ipv4:10.0.0.1:7070", "[fd00::1]:7070", "none.test:7070", ""}) {
    EXPECT_THAT(Replicas(server), ElementsAre(server));
  }
}

TEST(Replicas, AListHasTheReplicasOfEach) {
  SetAddresses("two.test", {"10.0.0.1", "10.0.0.2"});
  EXPECT_THAT(Replicas("10.0.0.9:1,two.test:7070"),
              ElementsAre("10.0.0.9:1", "ipv4:10.0.0.1:7070 as two.test",
                          "ipv4:10.0.0.2:7070 as two.test"));
}

}  // namespace
}  // namespace convgrad
