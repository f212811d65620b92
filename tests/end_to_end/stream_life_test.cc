// Tests streams whose client leaves, waits or doesn't read, and the memory that
// they hold meanwhile.
#include <atomic>
#include <functional>
#include <thread>

#include "gtest/gtest.h"
#include "tests/end_to_end/peers/raw_stream.h"
#include "tests/end_to_end/peers/test_server.h"
#include "tests/server/scheduling/puppet_backend.h"

namespace convgrad {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

class StreamLifeTest : public testing::Test {
 protected:
  static Config PuppetConfig() {
    Config config = TestConfig();
    config.buffer_pool_idle_bytes = 0;
    config.plan_cache_bytes = 0;
    config.weight_cache_bytes = 0;
    config.queue_capacity = 1;
    return config;
  }
  explicit StreamLifeTest(const Config& config = PuppetConfig())
      : server_(config, Puppets()) {}

  std::vector<RegisteredBackend> Puppets() {
    std::vector<RegisteredBackend> backends;
    backends.push_back(RegisteredPuppet("puppet", &strings_));
    return backends;
  }
  void AwaitGauges(const std::function<bool(const Readings&)>& reached) {
    while (!reached(server_.server().gauges())) std::this_thread::yield();
  }
  // Opens `stream` and sends the first `frames` frames of the operation.
  static void Begin(RawStream* stream, size_t frames) {
    const std::vector<v1::ConvStreamRequest> all = TestFrames();
    EXPECT_TRUE(stream->Write(TestHeader()));
    for (size_t i = 0; i < frames; ++i) EXPECT_TRUE(stream->Write(all[i]));
  }
  void ExpectGood() {
    std::vector<v1::ConvStreamRequest> messages = TestFrames();
    messages.insert(messages.begin(), TestHeader());
    const StreamOutcome outcome = SendAll(server_.stub(), messages);
    EXPECT_TRUE(outcome.status.ok()) << outcome.status.error_message();
    server_.ExpectNothingHeld();
  }

  PuppetStrings strings_;
  TestServer server_;
};

TEST_F(StreamLifeTest, ClientGoneWhileASliceRuns) {
  strings_.HoldRuns();
  RawStream stream(server_.stub());
  Begin(&stream, 5);
  strings_.AwaitRuns(1);
  stream.Cancel();
  EXPECT_EQ(stream.AwaitEnd().status.error_code(), grpc::StatusCode::CANCELLED);
  strings_.Release();
  server_.ExpectNothingHeld();
  // The server may hear of the cancellation before or after the run ends. Two
  // of three slices had come.
  EXPECT_LE(strings_.runs(), 2);
  ExpectGood();
}

TEST_F(StreamLifeTest, ClientGoneBetweenFrames) {
  RawStream stream(server_.stub());
  Begin(&stream, 2);
  AwaitGauges(
      [](const Readings& g) { return g.SumOf("convgrad_buffers") > 0; });
  stream.Cancel();
  EXPECT_EQ(stream.AwaitEnd().status.error_code(), grpc::StatusCode::CANCELLED);
  server_.ExpectNothingHeld();
  EXPECT_EQ(strings_.runs(), 0);
}

TEST_F(StreamLifeTest, DeadlineWhileASliceIsQueued) {
  strings_.HoldRuns();
  RawStream running(server_.stub());
  Begin(&running, 3);
  strings_.AwaitRuns(1);
  RawStream queued(server_.stub(), absl::Milliseconds(300));
  Begin(&queued, 3);
  EXPECT_EQ(queued.AwaitEnd().status.error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  // The stream leaves the queue long before the worker is free.
  AwaitGauges(
      [](const Readings& g) { return g.SumOf("convgrad_queue_depth") == 0; });
  running.Cancel();
  running.AwaitEnd();
  strings_.Release();
  server_.ExpectNothingHeld();
  EXPECT_EQ(strings_.runs(), 1);
}

TEST_F(StreamLifeTest, LaterSlicesWaitForAPlaceInTheQueue) {
  RawStream first(server_.stub());
  Begin(&first, 3);
  v1::ConvStreamResponse frame;
  ASSERT_TRUE(first.Read(&frame));  // Slice 0 has ended.
  strings_.HoldRuns();
  RawStream running(server_.stub());
  Begin(&running, 3);
  strings_.AwaitRuns(2);
  RawStream queued(server_.stub());
  Begin(&queued, 3);
  AwaitGauges(
      [](const Readings& g) { return g.SumOf("convgrad_queue_depth") == 1; });
  // The server answers BUSY to a new stream, but not to one that has started.
  RawStream refused(server_.stub());
  Begin(&refused, 0);  // The header suffices for that.
  const StreamOutcome outcome = refused.AwaitEnd();
  EXPECT_EQ(outcome.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_NE(outcome.trailers.pushback_ms, "");
  for (size_t i = 3; i < 7; ++i) EXPECT_TRUE(first.Write(TestFrames()[i]));
  absl::SleepFor(absl::Milliseconds(100));
  strings_.Release();
  EXPECT_TRUE(first.Finish().status.ok());
  running.Cancel();
  queued.Cancel();
  running.AwaitEnd();
  queued.AwaitEnd();
  server_.ExpectNothingHeld();
}

TEST_F(StreamLifeTest, DrainLetsStreamsFinish) {
  RawStream stream(server_.stub());
  Begin(&stream, 3);
  strings_.AwaitRuns(1);
  std::atomic<bool> drained{false};
  std::thread drainer([&] { drained = server_.server().Drain(); });
  // Draining starts some time after the call of Drain.
  while (SendAll(server_.stub(), {}).status.error_code() !=
         grpc::StatusCode::UNAVAILABLE) {
    std::this_thread::yield();
  }
  for (size_t i = 3; i < 7; ++i) EXPECT_TRUE(stream.Write(TestFrames()[i]));
  EXPECT_TRUE(stream.Finish().status.ok());
  drainer.join();
  EXPECT_TRUE(drained);
}

TEST_F(StreamLifeTest, StopsWhileStreamsRunAndWait) {
  strings_.HoldRuns();
  RawStream running(server_.stub());
  Begin(&running, 3);
  strings_.AwaitRuns(1);
  RawStream idle(server_.stub());
  Begin(&idle, 1);
  std::thread stopper([&] { server_.Stop(); });
  EXPECT_FALSE(idle.AwaitEnd().status.ok());
  EXPECT_FALSE(running.AwaitEnd().status.ok());
  strings_.Release();
  stopper.join();
}

class ImpatientStreamTest : public StreamLifeTest {
 protected:
  static Config ImpatientConfig() {
    Config config = PuppetConfig();
    config.stream_idle_timeout = absl::Milliseconds(400);
    return config;
  }
  ImpatientStreamTest() : StreamLifeTest(ImpatientConfig()) {}
};

TEST_F(ImpatientStreamTest, EndsWhenNoHeaderComes) {
  RawStream stream(server_.stub());
  const StreamOutcome outcome = stream.AwaitEnd();
  EXPECT_EQ(outcome.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(outcome.trailers.field, "stream");
  server_.ExpectNothingHeld();
}

TEST_F(ImpatientStreamTest, EndsWhenFramesStopComing) {
  RawStream stream(server_.stub());
  Begin(&stream, 4);
  const StreamOutcome outcome = stream.AwaitEnd();
  EXPECT_EQ(outcome.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(outcome.trailers.reason, "DEADLINE");
  EXPECT_EQ(outcome.trailers.field, "stream");
  EXPECT_EQ(outcome.frames, 1);
  server_.ExpectNothingHeld();
}

TEST_F(ImpatientStreamTest, EndsWhenFramesOnlyTrickle) {
  RawStream stream(server_.stub());
  Begin(&stream, 0);
  // Each pause is well within the time limit, all together aren't.
  bool open = true;
  for (int64_t offset = 0; open && offset < 200; offset += 4) {
    open = stream.Write(TestFrame(v1::OPERAND_WEIGHT, offset, 4));
    absl::SleepFor(absl::Milliseconds(40));
  }
  EXPECT_FALSE(open);
  const StreamOutcome outcome = stream.AwaitEnd();
  EXPECT_EQ(outcome.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(outcome.trailers.found, "too little sent for 400ms");
  server_.ExpectNothingHeld();
}

TEST_F(ImpatientStreamTest, DoesNotBlameTheClientForASlowServer) {
  strings_.HoldRuns();
  RawStream stream(server_.stub());
  Begin(&stream, 7);
  strings_.AwaitRuns(1);
  absl::SleepFor(absl::Milliseconds(1000));
  strings_.Release();
  EXPECT_TRUE(stream.Finish().status.ok());
  server_.ExpectNothingHeld();
}

// Each slice has 1 MiB each way: 2048 items of linear_c128_o128.
class StreamMemoryTest : public StreamLifeTest {
 protected:
  static constexpr int64_t kSlices = 40;
  static Config RoomyConfig() {
    Config config = PuppetConfig();
    // The plan is in the cache, so no call pays for it.
    config.plan_cache_bytes = kMiB;
    config.stream_idle_timeout = absl::Seconds(2);
    return config;
  }
  StreamMemoryTest() : StreamLifeTest(RoomyConfig()) {}

  static v1::ConvStreamRequest Header() {
    v1::ConvStreamRequest message = TestHeader();
    v1::ConvOperation* operation =
        message.mutable_header()->mutable_operation();
    operation->mutable_problem()->Clear();
    operation->mutable_problem()->add_input_dims(kSlices * 2048);
    operation->mutable_problem()->add_input_dims(128);
    operation->mutable_problem()->set_out_channels(128);
    const auto set_dims = [](v1::Tensor* tensor, int64_t first) {
      tensor->clear_dims();
      tensor->add_dims(first);
      tensor->add_dims(128);
    };
    v1::Operands* operands = operation->mutable_operands();
    set_dims(operands->mutable_input(), kSlices * 2048);
    set_dims(operands->mutable_grad_output(), kSlices * 2048);
    set_dims(operands->mutable_weight(), 128);
    operation->mutable_results()->DeleteSubrange(2, 1);
    message.mutable_header()->set_slice_items(2048);
    return message;
  }
  // Sends the whole operation. Returns false if the stream ended.
  static bool SendSlices(RawStream* stream) {
    bool open = stream->Write(Header()) &&
                stream->Write(TestFrame(v1::OPERAND_WEIGHT, 0, 128 * 128 * 4));
    for (int64_t slice = 0; open && slice < kSlices; ++slice) {
      open =
          stream->Write(TestFrame(v1::OPERAND_INPUT, slice * kMiB, kMiB)) &&
          stream->Write(TestFrame(v1::OPERAND_GRAD_OUTPUT, slice * kMiB, kMiB));
    }
    return open;
  }
  // The bytes are two slices of input, grad_output and grad_input; scratch of
  // one slice; a frame of 4 MiB; three times 64 KiB for weight, its sum and an
  // addend, and two of them as scratch; 64 KiB for the call.
  static constexpr int64_t kFormulaBytes =
      6 * kMiB + 3 * kMiB + 4 * kMiB + 6 * (kMiB / 16);
};

TEST_F(StreamMemoryTest, NeverTakesMoreThanTheFormulaSays) {
  std::atomic<bool> over{false};
  int64_t most = 0;
  std::thread sampler([&] {
    while (!over) {
      most = std::max(
          most, server_.server().gauges().SumOf("convgrad_memory_used_bytes"));
      std::this_thread::yield();
    }
  });
  RawStream stream(server_.stub());
  std::thread writer([&] { EXPECT_TRUE(SendSlices(&stream)); });
  v1::ConvStreamResponse message;
  int64_t received = 0;
  while (received < kSlices * kMiB && stream.Read(&message)) {
    received += static_cast<int64_t>(message.payloads(0).size());
  }
  writer.join();
  EXPECT_TRUE(stream.Finish().status.ok());
  over = true;
  sampler.join();
  EXPECT_EQ(received, kSlices * kMiB);
  EXPECT_EQ(most, kFormulaBytes);
  server_.ExpectNothingHeld();
}

TEST_F(StreamMemoryTest, AReaderThatDoesNotReadIsHeldUpAndThenCutOff) {
  RawStream stream(server_.stub());
  std::thread writer([&] { EXPECT_FALSE(SendSlices(&stream)); });
  server_.AwaitMetric(
      "convgrad_requests_total{backend=\"puppet\",code=\"DeadlineExceeded\","
      "dtype=\"f32\",op=\"backward\"} 1");
  writer.join();
  // Two slices are in result buffers, and some are in gRPC and the sockets.
  EXPECT_LT(strings_.runs(), kSlices / 2);
  EXPECT_FALSE(stream.AwaitEnd().status.ok());
  server_.ExpectNothingHeld();
}

}  // namespace
}  // namespace convgrad
