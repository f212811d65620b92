// Tests calls whose tensors are in shared memory: they give the same answers as
// messages, and the memory is freed whatever happens to the client.
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "absl/time/clock.h"
#include "client/cpp/client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/peers/region_server.h"
#include "tests/server/scheduling/puppet_backend.h"

namespace convgrad {
namespace {

using testing::ElementsAre;

constexpr int64_t kMiB = int64_t{1} << 20;

struct Formats {
  DataType dtype;
  Layout activation;
  Layout weight;
};

// Returns a backward of all gradients.
ConvOperation BackwardOf(const std::string& text, const Formats& formats) {
  ConvOperation operation;
  operation.direction = Direction::kBackward;
  operation.problem = *Parse(text);
  const ConvProblem& problem = operation.problem;
  const auto tensor = [&](const Dims& dims, Layout layout) {
    TensorDescriptor descriptor{formats.dtype, layout, dims, 0, 1};
    if (!IsRowMajor(layout)) descriptor.c0 = DefaultC0(formats.dtype);
    if (layout == Layout::kFractalZ3D) descriptor.groups = problem.groups;
    return descriptor;
  };
  const TensorDescriptor input = tensor(InputDims(problem), formats.activation);
  const TensorDescriptor weight = tensor(WeightDims(problem), formats.weight);
  const TensorDescriptor output =
      tensor(OutputDims(problem), formats.activation);
  operation.operand(Operand::kInput) = input;
  operation.operand(Operand::kWeight) = weight;
  operation.operand(Operand::kGradOutput) = output;
  if (problem.relu) operation.operand(Operand::kOutput) = output;
  operation.results = {{Result::kGradInput, input, 1},
                       {Result::kGradWeight, weight, 1}};
  if (problem.bias) {
    operation.results.push_back(
        {Result::kGradBias, tensor(*problem.bias, Layout::kNCX), 1});
  }
  return operation;
}

// Returns small finite numbers of any dtype. No byte has all exponent bits.
std::vector<std::byte> RandomBytes(int64_t size) {
  std::mt19937 random(static_cast<uint32_t>(size));
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = std::byte(random() % 0x3c);
  return bytes;
}

// A call with the bytes of its operands.
struct OwnedCall {
  OperationCall call;
  std::array<std::vector<std::byte>, kOperandCount> operands;

  explicit OwnedCall(ConvOperation operation) {
    call.operation = std::move(operation);
    for (size_t i = 0; i < kOperandCount; ++i) {
      if (!call.operation.operands[i]) continue;
      operands[i] = RandomBytes(*ByteSize(*call.operation.operands[i]));
      call.operands[i] = operands[i];
    }
  }
};

// Returns memory for the next tensor of `size` bytes, `shift` bytes after a
// multiple of 64.
absl::Span<std::byte> Take(SharedRegion* region, int64_t size, int64_t shift) {
  return region->Allocate(size + shift)->subspan(shift);
}

// Moves operands and results of `call` to `region`.
void MoveInto(SharedRegion* region, int64_t shift, OperationCall* call) {
  call->region = region;
  for (size_t i = 0; i < kOperandCount; ++i) {
    if (!call->operation.operands[i]) continue;
    const auto place =
        Take(region, static_cast<int64_t>(call->operands[i].size()), shift);
    std::copy(call->operands[i].begin(), call->operands[i].end(),
              place.begin());
    call->operands[i] = place;
  }
  for (const ResultRequest& result : call->operation.results) {
    call->destinations.push_back(
        Take(region, *ByteSize(result.descriptor), shift));
  }
}

void ExpectSameResults(const OperationReply& a, const OperationReply& b) {
  ASSERT_EQ(a.results.size(), b.results.size());
  for (size_t i = 0; i < a.results.size(); ++i) {
    ASSERT_EQ(a.results[i].bytes.size(), b.results[i].bytes.size());
    EXPECT_EQ(std::memcmp(a.results[i].bytes.data(), b.results[i].bytes.data(),
                          a.results[i].bytes.size()),
              0)
        << NameOf(a.results[i].which);
  }
}

class SharedMemoryTest : public testing::Test {
 protected:
  OperationReply MustRun(const OperationCall& call) {
    auto reply = client_->Run(call);
    if (!reply.ok()) {
      ADD_FAILURE() << reply.status();
      std::abort();
    }
    return *std::move(reply);
  }

  RegionServer server_;
  std::unique_ptr<Client> client_ =
      *Client::Connect({server_.test_server().address()});
};

TEST_F(SharedMemoryTest, GivesTheSameBytesAsMessagesDo) {
  for (const Formats& formats :
       {Formats{DataType::kF32, Layout::kNCX, Layout::kOIX},
        Formats{DataType::kF32, Layout::kNXC, Layout::kXIO},
        Formats{DataType::kBF16, Layout::kNXC, Layout::kOXI},
        Formats{DataType::kF16, Layout::kNDC1HWC0, Layout::kFractalZ3D}}) {
    for (const char* problem :
         {"conv2d_n2_c20_o24_i9_k3_p1_b_relu", "conv3d_n1_c4_o6_i5_k3_s2",
          "conv1d_n3_c8_o8_g8_i17_k3_p1"}) {
      OwnedCall inline_call(BackwardOf(problem, formats));
      const OperationReply expected = MustRun(inline_call.call);
      for (int64_t shift : {0, 2, 4, 32}) {
        SCOPED_TRACE(
            absl::StrCat(ToString(inline_call.call.operation), " + ", shift));
        const auto region = server_.NewRegion(kMiB);
        OperationCall call = inline_call.call;
        MoveInto(region.get(), shift, &call);
        const OperationReply reply = MustRun(call);
        ExpectSameResults(reply, expected);
        EXPECT_LT(reply.sent_bytes + reply.received_bytes, 2000);
        EXPECT_EQ(reply.results[0].bytes.data(), call.destinations[0].data());
      }
    }
  }
  server_.test_server().ExpectNothingHeld();
}

TEST_F(SharedMemoryTest, MixesWithMessages) {
  const Formats formats{DataType::kF32, Layout::kNCX, Layout::kOIX};
  OwnedCall inline_call(BackwardOf("conv2d_n2_c3_o4_i8_k3_b", formats));
  const OperationReply expected = MustRun(inline_call.call);
  const auto region = server_.NewRegion(kMiB);
  OperationCall call = inline_call.call;
  MoveInto(region.get(), 0, &call);
  const auto weight = static_cast<size_t>(Operand::kWeight);
  call.operands[weight] = inline_call.operands[weight];
  call.destinations[1] = {};
  const OperationReply reply = MustRun(call);
  ExpectSameResults(reply, expected);
  EXPECT_GT(reply.results[1].data.size(), 0);
  EXPECT_EQ(reply.results[0].data.size(), 0);
}

TEST_F(SharedMemoryTest, UsesTheLastByteOfARegion) {
  const Formats formats{DataType::kF32, Layout::kNCX, Layout::kOIX};
  // Input and grad_output have 4096 bytes each; grad_output ends with its page.
  OwnedCall inline_call(BackwardOf("conv2d_n1_c1_o1_i32_k1", formats));
  const OperationReply expected = MustRun(inline_call.call);
  OperationCall call = inline_call.call;
  const auto region = server_.NewRegion(4096);
  const auto place = static_cast<size_t>(Operand::kGradOutput);
  std::copy(call.operands[place].begin(), call.operands[place].end(),
            region->bytes().begin());
  call.operands[place] = region->bytes();
  call.region = region.get();
  ExpectSameResults(MustRun(call), expected);
}

TEST_F(SharedMemoryTest, SendsNoPayload) {
  const auto region = server_.NewRegion(4096);
  grpc::ClientContext context;
  v1::ConvBackwardResponse response;
  const v1::ConvBackwardRequest request = SeedInRegion(*region);
  const grpc::Status status =
      server_.test_server().stub().ConvBackward(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.payloads_size(), 0);
  const v1::Tensor& tensor = response.results(1).tensor();
  EXPECT_EQ(tensor.region().SerializeAsString(),
            request.operation().results(1).region().SerializeAsString());
  EXPECT_THAT(FloatsOf(std::string(
                  reinterpret_cast<char*>(region->bytes().data()) + 256, 16)),
              ElementsAre(8, 12, 20, 24));
}

TEST_F(SharedMemoryTest, CountsBytesAsMovedAndCopiesOnlyWhereUnaligned) {
  const auto region = server_.NewRegion(4096);
  v1::ConvBackwardRequest request = SeedInRegion(*region);
  const auto run = [&] {
    grpc::ClientContext context;
    v1::ConvBackwardResponse response;
    EXPECT_TRUE(server_.test_server()
                    .stub()
                    .ConvBackward(&context, request, &response)
                    .ok());
  };
  const std::string labels =
      "{backend=\"onednn\",code=\"OK\",dtype=\"f32\",op=\"backward\"} ";
  run();
  server_.test_server().AwaitMetric("convgrad_requests_total" + labels + "1");
  server_.test_server().AwaitMetric("convgrad_received_bytes_total" + labels +
                                    "68");
  server_.test_server().AwaitMetric("convgrad_sent_bytes_total" + labels +
                                    "52");
  server_.test_server().AwaitMetric("convgrad_copied_bytes_total" + labels +
                                    "0");
  v1::ConvOperation* operation = request.mutable_operation();
  operation->mutable_operands()
      ->mutable_weight()
      ->mutable_region()
      ->set_byte_offset(68);
  operation->mutable_results(0)->mutable_region()->set_byte_offset(212);
  run();
  server_.test_server().AwaitMetric("convgrad_requests_total" + labels + "2");
  server_.test_server().AwaitMetric("convgrad_copied_bytes_total" + labels +
                                    "52");
}

TEST_F(SharedMemoryTest, ShowsRegionsAndTheirBytes) {
  TestServer& server = server_.test_server();
  server.AwaitMetric("convgrad_regions 0");
  auto small = server_.NewRegion(1);
  auto large = server_.NewRegion(8192);
  server.AwaitMetric("convgrad_regions 2");
  server.AwaitMetric("convgrad_region_bytes 12288");
  EXPECT_EQ(server_.gauges().SumOf("convgrad_memory_used_bytes"), 12288);
  small.reset();
  server.AwaitMetric("convgrad_regions 1");
  large.reset();
  server.AwaitMetric("convgrad_regions 0");
  server.AwaitMetric("convgrad_region_bytes 0");
  server.ExpectNothingHeld();
}

TEST_F(SharedMemoryTest, SaysWhereRegionsAreHad) {
  const auto capabilities = client_->Capabilities(absl::InfiniteFuture());
  ASSERT_TRUE(capabilities.ok());
  EXPECT_EQ(capabilities->shared_memory().address(), server_.address());
  EXPECT_EQ(capabilities->shared_memory().max_region_bytes(),
            server_.test_server().server().config().max_region_bytes);
  TestServer other;
  const auto without = (*Client::Connect({other.address()}))
                           ->Capabilities(absl::InfiniteFuture());
  ASSERT_TRUE(without.ok());
  EXPECT_FALSE(without->has_shared_memory());
}

TEST_F(SharedMemoryTest, EndsWithRegionsOpen) {
  const auto region = server_.NewRegion(4096);
  server_.test_server().Stop();
  EXPECT_EQ(region->bytes()[0], std::byte{0});
}

TEST_F(SharedMemoryTest, ClientsWritingDuringCallsHarmOnlyTheirOwn) {
  const Formats formats{DataType::kF32, Layout::kNCX, Layout::kOIX};
  OwnedCall inline_call(BackwardOf("conv2d_n2_c16_o16_i16_k3_b_relu", formats));
  const OperationReply expected = MustRun(inline_call.call);
  const auto region = server_.NewRegion(kMiB);
  OperationCall call = inline_call.call;
  MoveInto(region.get(), 0, &call);
  std::atomic<bool> stop = false;
  std::thread scribbler([&] {
    for (uint8_t value = 0; !stop; ++value) {
      std::memset(region->bytes().data(), value, region->bytes().size());
    }
  });
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(client_->Run(call).ok());
    ExpectSameResults(MustRun(inline_call.call), expected);
  }
  stop = true;
  scribbler.join();
}

TEST_F(SharedMemoryTest, FreesTheRegionOfAClientThatIsKilled) {
  const std::string server = "--server=" + server_.test_server().address();
  const std::string region = "--region=" + server_.address();
  const char* arguments[] = {CONVGRAD_CLIENT_BINARY,
                             "bench",
                             "conv2d_n4_c16_o16_i32_k3_p1",
                             "--repeat=1000000",
                             server.c_str(),
                             region.c_str(),
                             nullptr};
  pid_t process;
  ASSERT_EQ(posix_spawn(&process, arguments[0], nullptr, nullptr,
                        const_cast<char**>(arguments), environ),
            0);
  server_.test_server().AwaitMetric("convgrad_regions 1");
  // Calls are running by now, or will soon.
  absl::SleepFor(absl::Milliseconds(100));
  kill(process, SIGKILL);
  waitpid(process, nullptr, 0);
  server_.test_server().AwaitMetric("convgrad_regions 0");
  server_.test_server().AwaitMetric("convgrad_region_bytes 0");
  server_.test_server().ExpectNothingHeld();
}

TEST_F(SharedMemoryTest, ServesTheCommandLineTool) {
  for (const char* command : {"backward", "forward", "bench --repeat=1"}) {
    const std::string line = absl::StrCat(
        CONVGRAD_CLIENT_BINARY, " ", command,
        " conv2d_n2_c8_o8_i6_k3_p1_b_relu --dtype=bf16 --server=",
        server_.test_server().address(), " --region=", server_.address());
    EXPECT_EQ(std::system(line.c_str()), 0) << line;
  }
  server_.test_server().ExpectNothingHeld();
}

TEST(SharedMemory, ServesTensorsLargerThanAnyMessage) {
  Config config = TestConfig();
  config.max_message_bytes = kMiB;
  RegionServer server(config);
  const auto client = *Client::Connect({server.test_server().address()});
  const Formats formats{DataType::kF32, Layout::kNCX, Layout::kOIX};
  OwnedCall call(BackwardOf("conv2d_n1_c32_o32_i128_k1", formats));
  // With a self-check the client sends a message instead of a stream.
  call.call.self_check = true;
  EXPECT_EQ(client->Run(call.call).status().code(),
            absl::StatusCode::kResourceExhausted);
  call.call.self_check = false;
  const auto region = server.NewRegion(8 * kMiB);
  MoveInto(region.get(), 0, &call.call);
  const auto reply = client->Run(call.call);
  ASSERT_TRUE(reply.ok()) << reply.status();
  const auto first = reply->results[0].bytes;
  const std::vector<std::byte> whole(first.begin(), first.end());
  std::fill(call.call.destinations[0].begin(), call.call.destinations[0].end(),
            std::byte{0x55});
  const auto streamed = client->RunStreamed(call.call, 1);
  ASSERT_TRUE(streamed.ok()) << streamed.status();
  EXPECT_EQ(streamed->results[0].bytes.data(),
            call.call.destinations[0].data());
  EXPECT_TRUE(std::equal(whole.begin(), whole.end(),
                         streamed->results[0].bytes.begin()));
}

TEST(SharedMemory, OutlivesItsClientInTheQueue) {
  PuppetStrings strings;
  std::vector<RegisteredBackend> backends;
  backends.push_back(RegisteredPuppet("puppet", &strings));
  RegionServer server(TestConfig(), std::move(backends));
  strings.HoldRuns();
  const auto call = [&](const v1::ConvBackwardRequest& request) {
    return std::thread([&server, request] {
      grpc::ClientContext context;
      v1::ConvBackwardResponse response;
      const grpc::Status status = server.test_server().stub().ConvBackward(
          &context, request, &response);
      EXPECT_TRUE(status.ok()) << status.error_message();
    });
  };
  std::thread running = call(SeedBackward());
  strings.AwaitRuns(1);
  auto region = server.NewRegion(4096);
  std::thread queued = call(SeedInRegion(*region));
  while (server.gauges().SumOf("convgrad_queue_depth") < 1)
    std::this_thread::yield();
  region.reset();
  server.test_server().AwaitMetric("convgrad_regions 0");
  EXPECT_GE(server.gauges().SumOf("convgrad_memory_used_bytes"), 4096)
      << "the call has it still";
  strings.Release();
  running.join();
  queued.join();
  server.test_server().ExpectNothingHeld();
}

}  // namespace
}  // namespace convgrad
