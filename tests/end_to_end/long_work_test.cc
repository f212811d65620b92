// Tests work of many slices, and calls with a higher priority.
#include <thread>
#include <vector>

#include "client/cpp/client.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/peers/pending_call.h"
#include "tests/end_to_end/peers/region_server.h"
#include "tests/end_to_end/peers/streamed_operation.h"
#include "tests/server/scheduling/puppet_backend.h"
#include "tests/server/scheduling/slow_backend.h"

namespace convgrad {
namespace {

// At this rate each item of a batch is a slice.
constexpr double kSlow = 1;

std::vector<RegisteredBackend> Only(absl::string_view name,
                                    std::unique_ptr<Backend> backend) {
  std::vector<RegisteredBackend> backends;
  backends.push_back({name, std::move(backend)});
  return backends;
}

std::vector<std::string> ResultsOf(const absl::StatusOr<OperationReply>& reply,
                                   const ConvOperation& operation) {
  EXPECT_TRUE(reply.ok()) << reply.status();
  std::vector<std::string> results;
  for (const ResultRequest& request : operation.results) {
    if (reply.ok()) results.push_back(BytesOf(*reply, request.which));
  }
  return results;
}

class LongWorkTest : public testing::Test {
 protected:
  static ConvOperation Operation(DataType dtype) {
    return WholeOperation(*Parse("conv2d_n6_c5_o7_i9_k3_p1_b_relu"),
                          Direction::kBackward, dtype, Layout::kNCX);
  }

  RegionServer server_{TestConfig(), Only("onednn", MakeSlow("onednn", kSlow))};
  std::unique_ptr<Client> client_ =
      *Client::Connect({server_.test_server().address()});
};

TEST_F(LongWorkTest, IsTheSameByMessageAndInARegionWhateverTheLoad) {
  for (DataType dtype : {DataType::kF32, DataType::kBF16}) {
    const OperationData data(Operation(dtype), Values::kReals);
    const std::vector<std::string> expected =
        ResultsOf(client_->Run(data.Call()), data.operation());
    std::vector<std::thread> others;
    for (int i = 0; i < 4; ++i) {
      others.emplace_back([&] {
        EXPECT_EQ(ResultsOf(client_->Run(data.Call()), data.operation()),
                  expected);
      });
    }
    const auto region = server_.NewRegion(1 << 20);
    OperationCall call = data.Call();
    call.region = region.get();
    for (auto& operand : call.operands) {
      if (operand.empty()) continue;
      const auto place = *region->Allocate(std::ssize(operand));
      std::copy(operand.begin(), operand.end(), place.begin());
      operand = place;
    }
    for (const ResultRequest& request : call.operation.results) {
      call.destinations.push_back(
          *region->Allocate(*ByteSize(request.descriptor)));
    }
    EXPECT_EQ(ResultsOf(client_->Run(call), data.operation()), expected);
    for (std::thread& other : others) other.join();
  }
  server_.test_server().ExpectNothingHeld();
}

TEST_F(LongWorkTest, OfIntegersIsTheSameInOnePiece) {
  TestServer usual;
  const auto whole = *Client::Connect({usual.address()});
  for (DataType dtype : {DataType::kF32, DataType::kBF16}) {
    const OperationData data(Operation(dtype), Values::kIntegers);
    const std::vector<std::string> expected =
        ResultsOf(whole->Run(data.Call()), data.operation());
    EXPECT_EQ(ResultsOf(client_->Run(data.Call()), data.operation()), expected);
    // The server cuts the slices of a stream again.
    EXPECT_EQ(ResultsOf(client_->RunStreamed(data.Call(), 4), data.operation()),
              expected);
  }
}

class UrgentWorkTest : public testing::Test {
 protected:
  // Returns a configuration in which one client may hold all memory, because
  // its first calls never end by themselves.
  static Config WholeShareConfig() {
    Config config = TestConfig();
    config.max_client_share = 1;
    return config;
  }
  void AwaitQueued(int64_t jobs) {
    while (server_.server().gauges().SumOf("convgrad_queue_depth") < jobs) {
      std::this_thread::yield();
    }
  }

  PuppetStrings strings_;
  TestServer server_{
      WholeShareConfig(),
      Only("puppet", std::make_unique<PuppetBackend>(
                         &strings_, PuppetTraits{.macs_per_second = kSlow}))};
};

TEST_F(UrgentWorkTest, ACancelledCallLeavesItsWorkerBetweenSlices) {
  // The work takes longer than the server needs to hear of the cancellation.
  constexpr int64_t kSlices = 100'000;
  strings_.HoldRuns();
  PendingCall cancelled(server_.stub(), absl::InfiniteDuration(),
                        SeedBackwardOf(kSlices));
  strings_.AwaitRuns(1);
  PendingCall next(server_.stub(), absl::InfiniteDuration(), SeedBackward());
  AwaitQueued(1);
  cancelled.Cancel();
  EXPECT_EQ(cancelled.Await(), grpc::StatusCode::CANCELLED);
  strings_.Release();
  EXPECT_EQ(next.Await(), grpc::StatusCode::OK);
  server_.AwaitMetric(
      "convgrad_requests_total{backend=\"puppet\",code=\"Canceled\","
      "dtype=\"f32\",op=\"backward\"} 1");
  EXPECT_LT(strings_.runs(), kSlices);
  server_.ExpectNothingHeld();
}

TEST_F(UrgentWorkTest, InteractiveCallsGoFirst) {
  strings_.HoldRuns();
  PendingCall running(server_.stub(), absl::InfiniteDuration(), SeedBackward());
  strings_.AwaitRuns(1);
  PendingCall batch(server_.stub(), absl::InfiniteDuration(), SeedBackward(),
                    "batch");
  AwaitQueued(1);
  PendingCall interactive(server_.stub(), absl::InfiniteDuration(),
                          SeedBackward(), "interactive");
  AwaitQueued(2);
  server_.AwaitMetric("convgrad_queue_depth{priority=\"interactive\"} 1");
  strings_.ReleaseOneRun();
  EXPECT_EQ(running.Await(), grpc::StatusCode::OK);
  strings_.AwaitRuns(2);
  strings_.ReleaseOneRun();
  EXPECT_EQ(interactive.Await(), grpc::StatusCode::OK);
  strings_.Release();
  EXPECT_EQ(batch.Await(), grpc::StatusCode::OK);
}

TEST_F(UrgentWorkTest, AnUnknownPriorityIsRefused) {
  const RawReply reply = CallRaw(server_.channel(), "ConvBackward",
                                 SeedBackward().SerializeAsString(),
                                 {{"convgrad-priority", "urgent"}});
  EXPECT_EQ(reply.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(reply.trailers.field, "convgrad-priority");
  EXPECT_EQ(reply.trailers.found, "'urgent'");
  EXPECT_EQ(reply.trailers.expected, "batch or interactive");
}

}  // namespace
}  // namespace convgrad
