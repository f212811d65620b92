// Tests what the C++ client does with shared memory if connections are lost:
// results are there when a call ends, and nothing is written later.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/algorithm/container.h"
#include "client/cpp/client.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/client/cpp_session.h"
#include "tests/end_to_end/peers/cutting_proxy.h"
#include "tests/end_to_end/peers/region_server.h"

namespace convgrad {
namespace {

const TensorDescriptor kInput1x1{DataType::kF32, Layout::kNCX, {1, 1, 4, 4}};

// A forward of 1x1, with its result in shared memory.
class CppRegionsTest : public testing::Test {
 protected:
  CppRegionsTest() {
    call_.operation =
        WholeOperation(*Parse("conv2d_n1_c1_o1_i4_k1"), Direction::kForward,
                       DataType::kF32, Layout::kNCX);
    call_.operands[PositionOf(Operand::kInput)] = ViewOf(input_);
    call_.operands[PositionOf(Operand::kWeight)] = ViewOf(weight_);
    call_.destinations = {*region_->Allocate(16 * sizeof(float))};
    call_.region = region_.get();
  }

  RegionServer server_;
  CuttingProxy proxy_{server_.test_server().address()};
  const std::unique_ptr<SharedRegion> region_ = server_.NewRegion(4096);
  const Floats input_ = RandomFloats(16, 1);
  const Floats weight_ = {2};
  OperationCall call_;
};

TEST_F(CppRegionsTest, ALostCallIsFinalIfTheServerMayStillWriteItsResults) {
  const auto client = *Client::Connect(OptionsFor(proxy_.address()));
  ASSERT_TRUE(client->Run(call_).ok());
  proxy_.CutAfter(CuttingProxy::Direction::kToClient, 0);
  const absl::Status status = client->Run(call_).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  // Without shared memory, the same call is repeated.
  call_.destinations.clear();
  proxy_.CutAfter(CuttingProxy::Direction::kToClient, 0);
  const auto repeated = client->Run(call_);
  ASSERT_TRUE(repeated.ok()) << repeated.status();
  EXPECT_EQ(FloatsIn(repeated->results[0].bytes)[3], 2 * input_[3]);
  EXPECT_EQ(proxy_.cuts(), 2);
}

TEST_F(CppRegionsTest, ARegionEndsAlthoughAForkedProcessHasACopy) {
  auto region = server_.NewRegion(4096);
  server_.test_server().AwaitMetric("convgrad_regions 2");
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    pause();
    _exit(0);
  }
  region.reset();
  server_.test_server().AwaitMetric("convgrad_regions 1");
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST_F(CppRegionsTest, ARegionDoesNotEndWithAForkedProcessesCopy) {
  auto region = server_.NewRegion(4096);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    region.reset();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  const auto client = *Client::Connect({server_.test_server().address()});
  call_.destinations = {*region->Allocate(16 * sizeof(float))};
  call_.region = region.get();
  const absl::Status called = client->Run(call_).status();
  EXPECT_TRUE(called.ok()) << called;
}

TEST_F(CppRegionsTest, LostStreamsAreRepeated) {
  const auto client = *Client::Connect(OptionsFor(proxy_.address()));
  // Some repeats begin before gRPC knows that their connection has ended.
  for (int i = 1; i <= 50; ++i) {
    absl::c_fill(call_.destinations[0], std::byte{});
    proxy_.CutAfter(CuttingProxy::Direction::kToClient, 0);
    const auto reply = client->RunStreamed(call_, 0);
    ASSERT_TRUE(reply.ok()) << i << ": " << reply.status();
    EXPECT_EQ(FloatsIn(call_.destinations[0])[3], 2 * input_[3]);
    EXPECT_EQ(proxy_.cuts(), i);
  }
}

TEST_F(CppRegionsTest, ALostReadOfASessionIsFinalToo) {
  const auto session = *Session::Open(OptionsFor(proxy_.address()));
  ASSERT_TRUE(session->Put("x", kInput1x1, ViewOf(input_)).ok());
  call_.operands[PositionOf(Operand::kInput)] = {};
  call_.kept_operands[PositionOf(Operand::kInput)] = std::string("x");
  proxy_.CutAfter(CuttingProxy::Direction::kToClient, 0);
  const absl::Status status = session->Run(call_).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  // The next call could begin on the lost connection, too. A Get is repeated
  // until there is another one.
  ASSERT_TRUE(session->Get("x").ok());
  const auto next = session->Run(call_);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_GT(next->region_bytes, 0);
  EXPECT_EQ(FloatsIn(call_.destinations[0])[3], 2 * input_[3]);
  call_.destinations.clear();
  proxy_.CutAfter(CuttingProxy::Direction::kToClient, 0);
  EXPECT_TRUE(session->Run(call_).ok()) << "repeated without shared memory";
  EXPECT_EQ(proxy_.cuts(), 2);
}

}  // namespace
}  // namespace convgrad
