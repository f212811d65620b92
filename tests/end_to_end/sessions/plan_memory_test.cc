// Tests that the plans of large networks leave no memory behind in the server's
// process. Calls may take the bytes that the budget has counted for the plans.
#include <cstdint>
#include <fstream>
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

// Returns how many pages the process has mapped.
int64_t PageFaults(const ChildServer& server) {
  std::ifstream file(absl::StrCat("/proc/", server.process(), "/stat"));
  std::string other;
  for (int i = 0; i < 9; ++i) file >> other;
  int64_t faults = 0;
  file >> faults;
  return faults;
}

class PlanMemory : public testing::Test {
 protected:
  PlanMemory()
      : server_({"--memory_budget_bytes=1GiB"}),
        client_(grpc::CreateChannel(server_.address(),
                                    grpc::InsecureChannelCredentials())) {
    client_.Put("w", {4, 4, 1, 1}, std::vector<float>(16));
  }

  void Infer(const std::string& network) {
    v1::RunProgramRequest request;
    request.set_program(network);
    AddValue("x", {1, 4, 2, 2}, std::vector<float>(16),
             request.mutable_inputs(), &request);
    const auto reply = client_.Infer(request);
    EXPECT_TRUE(reply.status.ok()) << reply.status.error_message();
  }

  ChildServer server_;
  NetworkClient client_;
};

TEST_F(PlanMemory, OfPlansThatTheCacheDoesNotKeepGoesBack) {
  ASSERT_TRUE(client_.Load("small", NetworkOf(1)).status.ok());
  ASSERT_TRUE(client_.Load("large", NetworkOf(3000)).status.ok());
  Infer("small");
  const int64_t before = server_.MemoryBytes("VmRSS");
  Infer("large");
  const int64_t peak = server_.MemoryBytes("VmHWM");
  // Later than the reply to the run, whose thread may still free the plan.
  Infer("small");
  const int64_t after = server_.MemoryBytes("VmRSS");
  std::cout << before / kMiB << " MiB before, " << peak / kMiB
            << " MiB at most, " << after / kMiB << " MiB after\n";
  EXPECT_GT(peak, before + 96 * kMiB);
  EXPECT_LT(after, before + 48 * kMiB);
}

TEST_F(PlanMemory, IsReusedByPlansThatTakeTurns) {
  // The cache has no room for all of them.
  const std::vector<std::string> names = {"a", "b", "c", "d"};
  for (const std::string& name : names) {
    const auto length = static_cast<int>(400 + name[0]);
    ASSERT_TRUE(client_.Load(name, NetworkOf(length)).status.ok());
    Infer(name);
  }
  const int64_t before = PageFaults(server_);
  for (const std::string& name : names) Infer(name);
  const int64_t faults = (PageFaults(server_) - before) / std::ssize(names);
  std::cout << faults << " page faults of each run\n";
  EXPECT_LT(faults, 3000);
}

}  // namespace
}  // namespace convgrad
