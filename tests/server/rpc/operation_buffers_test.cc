#include "server/rpc/operation_buffers.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "backends/core/conv_operation.h"
#include "backends/registry.h"
#include "gtest/gtest.h"
#include "server/memory/admission.h"

namespace convgrad {
namespace {

constexpr int64_t kBudget = int64_t{256} << 20;

const Backend& Onednn() {
  static const auto backends = *SelectBackends(MakeBackends(), "onednn");
  return **backends[0].backend;
}

// A request of random bytes in slices of odd sizes, as it comes from gRPC.
class Request {
 public:
  explicit Request(ConvOperation operation) {
    decoded_.operation = std::move(operation);
    decoded_.payload_index.fill(-1);
    decoded_.regions.results.resize(decoded_.operation.results.size());
    for (Operand operand : kAllOperands) {
      const auto& tensor = decoded_.operation.operand(operand);
      if (!tensor) continue;
      decoded_.payload_index[static_cast<size_t>(operand)] =
          static_cast<int>(payloads_.size());
      payloads_.push_back(RandomBytes(*ByteSize(*tensor)));
    }
  }

  const DecodedOperation& decoded() const { return decoded_; }
  int64_t bytes() const {
    int64_t sum = 0;
    for (const std::string& payload : payloads_) sum += std::ssize(payload);
    return sum;
  }

  int64_t capacity() const {
    int64_t sum = kCallOverheadBytes;
    for (const std::string& payload : payloads_) {
      sum += BufferPool::CapacityFor(std::ssize(payload));
    }
    return sum;
  }

  RequestBytes TakeBytes() {
    RequestBytes bytes;
    for (const std::string& payload : payloads_) {
      std::vector<grpc::Slice> slices;
      for (size_t at = 0; at < payload.size();) {
        const size_t size = 1 + random_() % (16 << 10);
        slices.emplace_back(payload.substr(at, size));
        at += size;
      }
      bytes.payloads.emplace_back(std::move(slices));
    }
    bytes.regions.results.resize(decoded_.operation.results.size());
    return bytes;
  }

  // Has grad_output read the payload of the input.
  void Share() {
    decoded_.payload_index[static_cast<size_t>(Operand::kGradOutput)] =
        decoded_.payload_index[static_cast<size_t>(Operand::kInput)];
  }

 private:
  // Small numbers in any dtype: no exponent of Inf or NaN.
  std::string RandomBytes(int64_t size) {
    std::string bytes(size, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random_() & 0x3b);
    return bytes;
  }

  std::mt19937 random_{11};
  DecodedOperation decoded_;
  std::vector<std::string> payloads_;
};

ConvOperation HalfBackward(absl::string_view problem) {
  return WholeOperation(*Parse(problem), Direction::kBackward, DataType::kF16,
                        Layout::kNXC);
}

class OperationBuffersTest : public testing::Test {
 protected:
  // Accepts, brings in, runs and sends; returns the results' bytes.
  std::string Run(Request& request, bool as_planned, int64_t budget = kBudget) {
    auto memory = std::make_shared<CallMemory>(
        budget, 0, 0, [](const auto& task) { task(); });
    std::string sent;
    {
      OperationBuffers buffers(memory);
      auto reservation = *memory->budget.TryReserve(request.capacity());
      EXPECT_TRUE(
          buffers.Accept(request.decoded(), request.TakeBytes(), &reservation)
              .ok());
      const auto plan =
          *Onednn().MakePlan(request.decoded().operation, {.threads = 1});
      RunBuffers run =
          *buffers.BringIn(as_planned ? plan.get() : nullptr, Onednn(), 2);
      taken_in_ = run.is_taken_in;
      std::vector<std::byte> scratch(plan->scratch_bytes() + 64);
      run.scratch =
          absl::MakeSpan(scratch.data() + 64 -
                             reinterpret_cast<uintptr_t>(scratch.data()) % 64,
                         plan->scratch_bytes());
      EXPECT_TRUE(plan->Run(run).ok());
      for (const grpc::Slice& slice : buffers.TakeResults(&reservation)) {
        sent.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
      }
      copied_ = buffers.copied_bytes();
    }
    EXPECT_EQ(memory->budget.used_bytes(), 0);
    EXPECT_EQ(memory->pool.outstanding(), 0);
    return sent;
  }

  bool TakenIn(Operand operand) const {
    return taken_in_[static_cast<size_t>(operand)];
  }

  int64_t copied_ = 0;

 private:
  std::array<bool, kOperandCount> taken_in_ = {};
};

TEST_F(OperationBuffersTest, TakingInChangesNoBit) {
  for (const char* problem :
       {"conv2d_n3_c20_o24_i9_k3_p1", "conv2d_n2_c64_o32_i96_k1",
        "conv3d_n2_c16_o16_i6_k3", "conv1d_n1_c4_o3_i5_k3"}) {
    Request request(HalfBackward(problem));
    const std::string as_it_is = Run(request, false);
    EXPECT_EQ(copied_, request.bytes()) << problem;
    EXPECT_FALSE(TakenIn(Operand::kInput)) << problem;
    EXPECT_EQ(Run(request, true), as_it_is) << problem;
    EXPECT_EQ(copied_, request.bytes()) << problem;
    // grad_output may be wanted in two forms.
    EXPECT_TRUE(TakenIn(Operand::kInput)) << problem;
    EXPECT_FALSE(TakenIn(Operand::kWeight)) << problem;
  }
}

TEST_F(OperationBuffersTest, TakesInOnlyWhatTheBudgetHasRoomFor) {
  Request request(HalfBackward("conv2d_n2_c64_o64_i96_k1"));
  const std::string bytes = Run(request, true);
  int64_t least = request.capacity();
  for (const auto& result : request.decoded().operation.results) {
    least += BufferPool::CapacityFor(*ByteSize(result.descriptor));
  }
  EXPECT_EQ(Run(request, true, least), bytes);
  EXPECT_FALSE(TakenIn(Operand::kInput));
}

TEST_F(OperationBuffersTest, LeavesAlonePayloadsThatTwoOperandsRead) {
  Request request(HalfBackward("conv2d_n2_c8_o8_i12_k3_p1"));
  request.Share();
  Run(request, true);
  EXPECT_FALSE(TakenIn(Operand::kInput));
  EXPECT_FALSE(TakenIn(Operand::kGradOutput));
}

}  // namespace
}  // namespace convgrad
