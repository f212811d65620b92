// Tests the C++ client with a real server: metadata, and the state after
// failures.
#include <malloc.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "backends/core/status.h"
#include "client/cpp/client.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/peers/test_server.h"

namespace convgrad {
namespace {

// A forward of zeros with 1 MiB of input and 1 MiB of output.
class CppClientTest : public testing::Test {
 protected:
  CppClientTest() {
    call_.operation =
        WholeOperation(*Parse("conv2d_n1_c1_o1_i512_k1"), Direction::kForward,
                       DataType::kF32, Layout::kNCX);
    call_.operands[static_cast<size_t>(Operand::kInput)] =
        absl::MakeConstSpan(input_);
    call_.operands[static_cast<size_t>(Operand::kWeight)] =
        absl::MakeConstSpan(input_).first(sizeof(float));
  }

  TestServer server_;
  const std::vector<std::byte> input_ =
      std::vector<std::byte>(512 * 512 * sizeof(float));
  OperationCall call_;
};

TEST_F(CppClientTest, SaysHowUrgentACallIs) {
  const auto client = Client::Connect({server_.address()});
  ASSERT_TRUE(client.ok()) << client.status();
  call_.priority = "interactive";
  EXPECT_TRUE((*client)->Run(call_).ok());
  server_.AwaitMetric(
      "convgrad_priority_queue_seconds_count{priority=\"interactive\"} 1");
  call_.priority = "urgent";
  const auto detail = DetailOf((*client)->Run(call_).status());
  ASSERT_TRUE(detail.has_value());
  EXPECT_EQ(detail->field, "convgrad-priority");
  EXPECT_EQ(detail->found, "'urgent'");
  EXPECT_EQ(detail->expected, "batch or interactive");
}

int64_t ResidentBytes() {
  int64_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * 4096;
}

int64_t Threads() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                       std::filesystem::directory_iterator());
}

// Messages of 1 MiB that were kept would show in the memory.
TEST_F(CppClientTest, AThousandFailuresLeaveNothing) {
  const auto client = Client::Connect({server_.address()});
  const auto nobody = Client::Connect({"127.0.0.1:1"});
  ASSERT_TRUE(client.ok() && nobody.ok());
  const auto run = [&](const auto& with, auto change) {
    return [&, change] {
      OperationCall call = call_;
      change(&call);
      return (*with)->Run(call).status();
    };
  };
  const std::vector<std::function<absl::Status()>> failures = {
      run(nobody, [](OperationCall*) {}),
      run(client,
          [](OperationCall* call) {
            call->deadline = absl::Now() - absl::Seconds(1);
          }),
      run(client, [](OperationCall* call) { call->backend = "cuda"; }),
      run(client, [](OperationCall* call) { call->priority = "urgent"; }),
      run(client,
          [](OperationCall* call) { call->operation.problem.axes.clear(); }),
  };
  const auto fail = [&](int times) {
    for (int i = 0; i < times; ++i) {
      EXPECT_FALSE(failures[i % failures.size()]().ok());
    }
    malloc_trim(0);
  };
  fail(200);
  const int64_t bytes = ResidentBytes(), threads = Threads();
  fail(1000);
  EXPECT_LT(ResidentBytes() - bytes, 64 << 20);
  // gRPC's own pools grow by a few threads on a busy machine. Threads that
  // failures left would be hundreds.
  EXPECT_LT(Threads(), threads + 50);
  server_.ExpectNothingHeld();
}

}  // namespace
}  // namespace convgrad
