// Tests calls whose operands are in shared memory while their client flips bits
// of it. Each call ends with some result or the refusal of an index, and does
// no harm. CONVGRAD_REGION_CALLS is the number of calls of each kind, 300 by
// default.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

#include "absl/strings/numbers.h"
#include "backends/core/convolution/conv_operation.h"
#include "client/cpp/client.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/peers/region_server.h"
#include "tests/end_to_end/sessions/network_client.h"

namespace convgrad {
namespace {

constexpr int64_t kRegionBytes = int64_t{4} << 20;
constexpr int64_t kPositions = 65536;
constexpr int64_t kClasses = 8;

int64_t CallsWanted() {
  const char* const text = std::getenv("CONVGRAD_REGION_CALLS");
  int64_t calls = 300;
  if (text != nullptr) {
    EXPECT_TRUE(absl::SimpleAtoi(text, &calls)) << text;
  }
  return calls;
}

// Flips single bits of some bytes, one after the other, and restores each at
// once, so that a second read of a call may see another number. Every second
// byte is one of `hot`, unless that is empty.
class Flipper {
 public:
  Flipper(absl::Span<std::byte> bytes, absl::Span<std::byte> hot)
      : thread_([this, bytes, hot] {
          std::mt19937 random(20261124);
          for (bool is_hot = false; !stop_; is_hot = !is_hot && !hot.empty()) {
            const auto& from = is_hot ? hot : bytes;
            auto* byte = reinterpret_cast<volatile uint8_t*>(
                &from[random() % from.size()]);
            const auto bit = static_cast<uint8_t>(1 << random() % 8);
            *byte = *byte ^ bit;
            // The bit stays flipped long enough for another core to see it.
            for (int i = 0; i < 5000; ++i) {
              std::atomic_signal_fence(std::memory_order_seq_cst);
            }
            *byte = *byte ^ bit;
          }
        }) {}
  ~Flipper() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

// Returns a configuration with memory for kept tensors and regions.
Config LargeConfig() {
  Config config = TestConfig();
  config.memory_budget_bytes = 122 * kRegionBytes;
  config.max_message_bytes = 2 * kRegionBytes;
  return config;
}

class HostileRegionTest : public testing::Test {
 protected:
  HostileRegionTest() {
    network_.Put("w", {kClasses, kClasses}, std::vector<float>(64, 0.125F));
    for (const auto& [name, text] :
         {std::pair{"loss",
                    "input x\ninput t index\nparameter w [8, 8]\n"
                    "z = linear(x, w)\ny = cross_entropy(z, t)\n"
                    "output y\n"},
          std::pair{"pool",
                    "input x\na = max_pool(x, kernel_size=3, stride=2)\n"
                    "y = relu(a)\noutput y\n"}}) {
      const auto loaded = network_.Load(name, text);
      EXPECT_TRUE(loaded.status.ok()) << loaded.status.error_message();
    }
    std::mt19937 random(5);
    for (std::byte& byte : region_->bytes()) byte = std::byte(random() % 0x3c);
  }

  // Returns the next bytes of the region. Some of them are at addresses that a
  // backend can't use in place.
  absl::Span<std::byte> Take(int64_t size) {
    const int64_t shift = ++taken_ % 5 == 0 ? 8 : 0;
    const auto place = region_->Allocate(size + shift);
    if (!place.ok()) {
      ADD_FAILURE() << place.status();
      std::abort();
    }
    return place->subspan(shift);
  }

  void PlaceIn(absl::Span<const std::byte> bytes,
               v1::Tensor::Region* place) const {
    const auto range = region_->RangeOf(bytes);
    place->set_region_id(range->region_id);
    place->set_byte_offset(range->byte_offset);
    place->set_byte_length(range->byte_length);
  }

  v1::Tensor TensorInRegion(const std::vector<int64_t>& dims,
                            v1::DataType dtype = v1::DATA_TYPE_F32) {
    v1::Tensor tensor = TensorOf(v1::LAYOUT_NCX, dims, dtype);
    int64_t bytes = dtype == v1::DATA_TYPE_F32 ? 4 : 8;
    for (const int64_t extent : dims) bytes *= extent;
    PlaceIn(Take(bytes), tensor.mutable_region());
    return tensor;
  }

  // Returns valid class indices.
  v1::Tensor IndicesInRegion() {
    v1::Tensor tensor = TensorInRegion({kPositions}, v1::DATA_TYPE_I64);
    hot_ = region_->bytes().subspan(tensor.region().byte_offset(),
                                    tensor.region().byte_length());
    std::vector<int64_t> indices(kPositions);
    for (int64_t i = 0; i < kPositions; ++i) indices[i] = i % kClasses;
    std::memcpy(hot_.data(), indices.data(), hot_.size());
    return tensor;
  }

  static void AddInput(const std::string& name, v1::Tensor tensor,
                       v1::RunProgramRequest* request) {
    request->add_inputs()->set_name(name);
    *request->mutable_inputs()->rbegin()->mutable_tensor() = std::move(tensor);
  }

  // Returns a convolution whose operands and results are in the region.
  OperationCall CallOf(const char* problem, Direction direction, DataType dtype,
                       Layout layout) {
    OperationCall call;
    call.operation = WholeOperation(*Parse(problem), direction, dtype, layout);
    call.region = region_.get();
    for (size_t i = 0; i < kOperandCount; ++i) {
      if (!call.operation.operands[i]) continue;
      call.operands[i] = Take(*ByteSize(*call.operation.operands[i]));
    }
    for (const ResultRequest& result : call.operation.results) {
      call.destinations.push_back(Take(*ByteSize(result.descriptor)));
    }
    return call;
  }

  // Calls `call` while bits flip. Its status is OK or refuses an index.
  template <typename Call>
  void CallOften(const Call& call) {
    {
      const Flipper flipper(region_->bytes(), hot_);
      for (int64_t i = 0; i < calls_; ++i) {
        const grpc::Status status = call();
        if (status.ok()) continue;
        ASSERT_EQ(status.error_code(), grpc::INVALID_ARGUMENT)
            << status.error_message();
        ASSERT_NE(status.error_message().find("t["), std::string::npos)
            << status.error_message();
      }
    }
    // Calls of another client still succeed.
    v1::ConvBackwardResponse response;
    grpc::ClientContext context;
    EXPECT_TRUE(server_.test_server()
                    .stub()
                    .ConvBackward(&context, SeedBackward(), &response)
                    .ok());
    EXPECT_EQ(FloatsOf(response.payloads(1)),
              (std::vector<float>{8, 12, 20, 24}));
    // The session's lease may hold memory that ends with it.
    region_.reset();
    server_.test_server().AwaitMetric("convgrad_regions 0");
  }

  const int64_t calls_ = CallsWanted();
  RegionServer server_{LargeConfig()};
  NetworkClient network_{server_.test_server().channel()};
  std::unique_ptr<SharedRegion> region_ = server_.NewRegion(kRegionBytes);
  absl::Span<std::byte> hot_;
  int taken_ = 0;
};

TEST_F(HostileRegionTest, Convolutions) {
  const auto client = *Client::Connect({server_.test_server().address()});
  std::vector<OperationCall> calls;
  for (const Direction direction :
       {Direction::kForward, Direction::kBackward}) {
    calls.push_back(CallOf("conv2d_n2_c8_o16_i8_k3_p1_b_relu", direction,
                           DataType::kF32, Layout::kNCX));
    calls.push_back(CallOf("conv2d_n1_c20_o24_i7_k3_b", direction,
                           DataType::kBF16, Layout::kNXC));
  }
  size_t next = 0;
  CallOften([&] {
    const auto reply = client->Run(calls[next++ % calls.size()]);
    return reply.ok() ? grpc::Status()
                      : grpc::Status(grpc::UNKNOWN,
                                     std::string(reply.status().message()));
  });
}

TEST_F(HostileRegionTest, IndicesOfARun) {
  v1::RunProgramRequest request;
  request.set_program("loss");
  AddInput("x", TensorInRegion({kPositions, kClasses}), &request);
  AddInput("t", IndicesInRegion(), &request);
  request.mutable_backward()->add_input_gradients("x");
  request.mutable_backward()->set_leave_parameters(true);
  CallOften([&] { return network_.Infer(request).status; });
}

TEST_F(HostileRegionTest, RunsThatKeepATapeAndGradientsThatTakeThemBack) {
  v1::RunProgramRequest run;
  run.set_program("pool");
  AddInput("x", TensorInRegion({2, 16, 17, 17}), &run);
  run.set_tape("tape");
  v1::BackwardProgramRequest backward;
  backward.set_tape("tape");
  backward.add_input_gradients("x");
  backward.add_output_gradients()->set_name("y");
  *backward.mutable_output_gradients(0)->mutable_tensor() =
      TensorInRegion({2, 16, 8, 8});
  CallOften([&] {
    const grpc::Status status = network_.Run(run).status;
    return status.ok() ? network_.Backward(backward).status : status;
  });
}

TEST_F(HostileRegionTest, Puts) {
  v1::PutTensorsRequest request;
  for (const char* name : {"a", "b", "c"}) {
    v1::NamedPut* put = request.add_tensors();
    put->set_name(name);
    *put->mutable_tensor() = TensorInRegion({64, 64});
  }
  CallOften([&] { return network_.session().Put(request).status; });
}

}  // namespace
}  // namespace convgrad
