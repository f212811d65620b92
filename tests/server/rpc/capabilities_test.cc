#include "server/rpc/capabilities.h"

#include <map>
#include <string>

#include "gtest/gtest.h"

namespace convgrad {
namespace {

using Facts = std::map<std::string, std::string>;

v1::GetCapabilitiesResponse Server() {
  v1::GetCapabilitiesResponse server;
  server.set_server_version("1.2");
  server.set_threads_per_worker(4);
  server.set_cpu_model("a CPU");
  v1::BackendCapabilities* onednn = server.add_backends();
  onednn->set_name("onednn");
  onednn->set_available(true);
  onednn->set_version("3.1");
  onednn->set_description("CPU");
  onednn->add_cpu_features("avx512");
  onednn->add_cpu_features("amx\n");
  v1::BackendCapabilities* reference = server.add_backends();
  reference->set_name("reference");
  reference->set_available(true);
  server.add_backends()->set_name("cuda");
  return server;
}

TEST(Capabilities, HaveTheFactsThatDecideBits) {
  EXPECT_EQ(FactsOf(Server()), (Facts{{"cpu", "a CPU"},
                                      {"fast_convolutions", "false"},
                                      {"onednn", "3.1 CPU amx? avx512"},
                                      {"server", "1.2"},
                                      {"threads_per_worker", "4"}}));
}

TEST(Capabilities, FactsFitASnapshot) {
  v1::GetCapabilitiesResponse server = Server();
  server.set_cpu_model(std::string(5000, 'c'));
  EXPECT_EQ(FactsOf(server)["cpu"].size(), 900);
}

TEST(Capabilities, NameWhatDiffers) {
  v1::SessionResponse response;
  AddDifferences({{"cpu", "a"}, {"cuda", "12"}, {"server", "1"}},
                 {{"cpu", "b"}, {"onednn", "3"}, {"server", "1"}},
                 response.mutable_differences());
  ASSERT_EQ(response.differences_size(), 3);
  EXPECT_EQ(response.differences(0).fact(), "cpu");
  EXPECT_EQ(response.differences(0).there(), "a");
  EXPECT_EQ(response.differences(0).here(), "b");
  EXPECT_EQ(response.differences(1).fact(), "cuda");
  EXPECT_EQ(response.differences(1).here(), "");
  EXPECT_EQ(response.differences(2).fact(), "onednn");
  EXPECT_EQ(response.differences(2).there(), "");
}

TEST(Capabilities, OfAnUnknownServerDifferInNothingThatIsKnown) {
  v1::SessionResponse response;
  AddDifferences({}, FactsOf(Server()), response.mutable_differences());
  EXPECT_EQ(response.differences_size(), 0);
}

}  // namespace
}  // namespace convgrad
