// Tests that the plans of large networks leave no memory behind in the server's
// process. Calls may take the bytes that the budget has counted for the plans.
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/peers/child_server.h"
#include "tests/end_to_end/sessions/network_client.h"

namespace convgrad {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// Returns a network of `convolutions`, whose plan takes some 50 KiB for each.
std::string NetworkOf(int convolutions) {
  std::string text = "input x\nparameter w [4, 4, 1, 1]\n";
  std::string x = "x";
  for (int i = 0; i < convolutions; ++i) {
    const std::string y = absl::StrCat("v", i);
    absl::StrAppend(&text, y, " = conv(", x, ", w)\n");
    x = y;
  }
  return absl::StrCat(text, "output ", x, "\n");
}

TEST(PlanMemory, OfPlansThatTheCacheDoesNotKeepGoesBack) {
  ChildServer server({"--memory_budget_bytes=1GiB"});
  NetworkClient client(grpc::CreateChannel(server.address(),
                                           grpc::InsecureChannelCredentials()));
  client.Put("w", {4, 4, 1, 1}, std::vector<float>(16));
  const auto run = [&](const std::string& network) {
    v1::RunProgramRequest request;
    request.set_program(network);
    AddValue("x", {1, 4, 2, 2}, std::vector<float>(16),
             request.mutable_inputs(), &request);
    const auto reply = client.Infer(request);
    EXPECT_TRUE(reply.status.ok()) << reply.status.error_message();
  };
  ASSERT_TRUE(client.Load("small", NetworkOf(1)).status.ok());
  ASSERT_TRUE(client.Load("large", NetworkOf(3000)).status.ok());
  run("small");
  const int64_t before = server.MemoryBytes("VmRSS");
  run("large");
  const int64_t peak = server.MemoryBytes("VmHWM");
  // Later than the reply to the run, whose thread may still free the plan.
  run("small");
  const int64_t after = server.MemoryBytes("VmRSS");
  std::cout << before / kMiB << " MiB before, " << peak / kMiB
            << " MiB at most, " << after / kMiB << " MiB after\n";
  EXPECT_GT(peak, before + 96 * kMiB);
  EXPECT_LT(after, before + 48 * kMiB);
}

}  // namespace
}  // namespace convgrad
