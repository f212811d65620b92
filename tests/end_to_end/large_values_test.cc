// Tests programs that a few bytes make large: windows, extents and the tables
// of plans. The process stays within its budget.
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/peers/child_server.h"
#include "tests/end_to_end/sessions/network_client.h"

namespace convgrad {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kBudgetBytes = 256 * kMiB;

class LargeValuesTest : public ::testing::Test {
 protected:
  // Runs `steps`, which compute y, on an x of zeros, (1, 1, extent).
  SessionReply<v1::RunProgramResponse> Run(const std::string& steps,
                                           int64_t extent,
                                           const std::string& tape = "") {
    const std::string name = absl::StrCat("p", ++programs_);
    const auto loaded =
        client_.Load(name, absl::StrCat("input x\n", steps, "\noutput y\n"));
    EXPECT_TRUE(loaded.status.ok()) << loaded.status.error_message();
    v1::RunProgramRequest request;
    request.set_program(name);
    request.set_tape(tape);
    AddValue("x", {1, 1, extent}, std::vector<float>(extent),
             request.mutable_inputs(), &request);
    return tape.empty() ? client_.Infer(request) : client_.Run(request);
  }

  void ExpectTooLarge(const SessionReply<v1::RunProgramResponse>& reply) {
    EXPECT_EQ(reply.status.error_code(), grpc::RESOURCE_EXHAUSTED)
        << reply.status.error_message();
    EXPECT_EQ(reply.trailers.reason, "LIMIT_EXCEEDED")
        << reply.status.error_message();
    ExpectWithinBudget();
  }

  void ExpectWithinBudget() {
    const int64_t peak = server_.MemoryBytes("VmHWM");
    EXPECT_LE(peak, kBudgetBytes + kBudgetBytes / 10) << peak / kMiB << " MiB";
  }

  int64_t Metric(const std::string& name) {
    const std::string page = HttpGet(server_.metrics_port(), "/metrics");
    for (absl::string_view line : absl::StrSplit(page, '\n')) {
      double value = 0;
      if (absl::ConsumePrefix(&line, name + " ") &&
          absl::SimpleAtod(line, &value)) {
        return static_cast<int64_t>(value);
      }
    }
    ADD_FAILURE() << name;
    return 0;
  }

  ChildServer server_{{"--metrics_listen=127.0.0.1:0",
                       absl::StrCat("--memory_budget_bytes=", kBudgetBytes)}};
  NetworkClient client_{grpc::CreateChannel(
      server_.address(), grpc::InsecureChannelCredentials())};
  int programs_ = 0;
};

TEST_F(LargeValuesTest, WindowsOverMostOfTheirInput) {
  const std::string steps = "y = max_pool(x, kernel_size=6000, stride=1)";
  ExpectTooLarge(Run(steps, 12000));
  ExpectTooLarge(Run(steps, 12000, "tape"));
  ExpectTooLarge(Run("y = avg_pool(x, kernel_size=6000, stride=1)", 12000));
}

TEST_F(LargeValuesTest, ExtentsFromOneElement) {
  const std::string end = "y = adaptive_avg_pool(a, output_size=1)";
  ExpectTooLarge(Run("a = upsample(x, size=10000000)\n" + end, 1));
  // A value that is larger than any budget is refused by name, before it is
  // planned.
  const auto reply = Run("a = upsample(x, size=100000000000)\n" + end, 1);
  ExpectTooLarge(reply);
  EXPECT_EQ(reply.trailers.field, "steps[0] (a)");
}

TEST_F(LargeValuesTest, TablesThatFitAreCountedInThePlanCache) {
  const int64_t before = Metric("convgrad_plan_cache_bytes");
  // The plan has 1001 windows of 1000 entries of 8 bytes.
  const auto reply = Run("y = max_pool(x, kernel_size=1000, stride=1)", 2000);
  ASSERT_TRUE(reply.status.ok()) << reply.status.error_message();
  EXPECT_GE(Metric("convgrad_plan_cache_bytes") - before, 1001 * 1000 * 8);
  ExpectWithinBudget();
}

}  // namespace
}  // namespace convgrad
