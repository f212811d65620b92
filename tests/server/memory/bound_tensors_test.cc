#include "server/memory/bound_tensors.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "backends/core/convolution/conv_operation.h"
#include "backends/core/program/program_operation.h"
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

// A message whose pieces can be freed.
class Message final : public ScatteredBytes {
 public:
  explicit Message(std::string bytes) : bytes_(std::move(bytes)) {}

  int64_t size() const override { return std::ssize(bytes_); }
  void CopyRange(int64_t offset, absl::Span<std::byte> to) const override {
    EXPECT_GE(offset, released_);
    std::memcpy(to.data(), bytes_.data() + offset, to.size());
  }
  void Release(int64_t offset) override { released_ = offset; }

 private:
  const std::string bytes_;
  int64_t released_ = 0;
};

// The alignment of bytes: 64 or 32 bytes after a multiple of 64.
enum class Alignment { kUsable, kUnusable };

// Memory that an owner keeps, like a region.
class KeptMemory {
 public:
  KeptMemory(std::string bytes, Alignment alignment)
      : memory_(std::make_shared<std::string>(bytes.size() + 128, '\0')) {
    const auto address = reinterpret_cast<uintptr_t>(memory_->data());
    place_.owner = memory_;
    place_.data = reinterpret_cast<std::byte*>(memory_->data()) + 64 -
                  address % 64 + (alignment == Alignment::kUsable ? 0 : 32);
    std::memcpy(place_.data, bytes.data(), bytes.size());
  }

  const TensorPlace& place() const { return place_; }

 private:
  std::shared_ptr<std::string> memory_;
  TensorPlace place_;
};

// A request of random bytes.
class Request {
 public:
  explicit Request(ConvOperation operation) : operation_(std::move(operation)) {
    for (const auto& tensor : operation_.operands) {
      bytes_.push_back(tensor ? RandomBytes(*ByteSize(*tensor)) : "");
    }
  }

  const ConvOperation& operation() const { return operation_; }
  const std::string& BytesOf(Operand operand) const {
    return bytes_[PositionOf(operand)];
  }
  int64_t bytes() const {
    int64_t sum = 0;
    for (const std::string& operand : bytes_) sum += std::ssize(operand);
    return sum;
  }
  int64_t capacity() const {
    int64_t sum = kCallOverheadBytes;
    for (const std::string& operand : bytes_) {
      sum += BufferPool::CapacityFor(std::ssize(operand));
    }
    return sum;
  }

  // Returns places of all tensors in messages.
  TensorPlaces Places() const {
    TensorPlaces places;
    places.results.resize(operation_.results.size());
    for (const std::string& operand : bytes_) {
      places.operands.push_back(
          {std::make_shared<Message>(operand), nullptr, nullptr});
    }
    return places;
  }

 private:
  // Returns small numbers in any dtype, without the exponent of Inf or NaN.
  std::string RandomBytes(int64_t size) {
    std::string bytes(size, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random_() & 0x3b);
    return bytes;
  }

  std::mt19937 random_{11};
  const ConvOperation operation_;
  std::vector<std::string> bytes_;  // By operand.
};

ConvOperation HalfBackward(absl::string_view problem) {
  return WholeOperation(*Parse(problem), Direction::kBackward, DataType::kF16,
                        Layout::kNXC);
}

class BoundTensorsTest : public testing::Test {
 protected:
  // Binds, brings in, runs and brings out. Returns the bytes of the results
  // that aren't in memory.
  std::string Run(const Request& request, TensorPlaces places) {
    auto memory = std::make_shared<CallMemory>(
        kBudget, 0, 0, [](const auto& task) { task(); });
    std::string sent;
    {
      BoundTensors tensors(memory);
      auto reservation = *memory->budget.TryReserve(request.capacity());
      EXPECT_TRUE(
          tensors.Bind(request.operation(), std::move(places), &reservation)
              .ok());
      owns_input_ = tensors.AreConstant({PositionOf(Operand::kInput)});
      const auto plan = *Onednn().MakePlan(request.operation(), {.threads = 1});
      RunBuffers run = *tensors.BringIn(Onednn(), 2);
      std::vector<std::byte> scratch(plan->scratch_bytes() + 64);
      run.scratch =
          absl::MakeSpan(scratch.data() + 64 -
                             reinterpret_cast<uintptr_t>(scratch.data()) % 64,
                         plan->scratch_bytes());
      EXPECT_TRUE(plan->Run(run).ok());
      tensors.BringOut(Onednn(), 2);
      copied_ = tensors.copied_bytes();
      for (const SharedBytes& result : tensors.TakeResults()) {
        sent.append(reinterpret_cast<const char*>(result.data), result.size);
      }
    }
    EXPECT_EQ(memory->budget.used_bytes(), 0);
    EXPECT_EQ(memory->pool.outstanding(), 0);
    return sent;
  }
  int64_t copied_ = 0;
  bool owns_input_ = false;
};

TEST_F(BoundTensorsTest, TwoOperandsMayShareTheirBytes) {
  const Request request(HalfBackward("conv2d_n2_c8_o8_i12_k3_p1"));
  TensorPlaces places = request.Places();
  places.operands[PositionOf(Operand::kGradOutput)] =
      places.operands[PositionOf(Operand::kInput)];
  Run(request, std::move(places));
  EXPECT_EQ(copied_, request.bytes() -
                         std::ssize(request.BytesOf(Operand::kGradOutput)));
}

TEST_F(BoundTensorsTest, UsesMemoryWhereItIsAndCopiesWhatIsNotAligned) {
  const Request request(HalfBackward("conv2d_n3_c20_o24_i9_k3_p1"));
  const std::string expected = Run(request, request.Places());
  EXPECT_EQ(copied_, request.bytes());
  const std::string& input = request.BytesOf(Operand::kInput);
  for (Alignment alignment : {Alignment::kUsable, Alignment::kUnusable}) {
    const bool is_usable = alignment == Alignment::kUsable;
    const KeptMemory source(input, alignment);
    const int64_t size = *ByteSize(request.operation().results[0].descriptor);
    const KeptMemory target(std::string(size, '\x7f'), alignment);
    TensorPlaces places = request.Places();
    places.operands[PositionOf(Operand::kInput)] = source.place();
    places.results[0] = target.place();
    const std::string others = Run(request, std::move(places));
    const std::string written(
        reinterpret_cast<const char*>(target.place().data), size);
    EXPECT_EQ(written + others, expected);
    EXPECT_EQ(owns_input_, !is_usable);
    EXPECT_EQ(copied_, is_usable ? request.bytes() - std::ssize(input)
                                 : request.bytes() + size);
  }
}

TEST_F(BoundTensorsTest, CopiesIndicesOutOfSharedMemory) {
  ProgramRequest request;
  request.program = std::make_shared<const Program>(
      *ParseProgram("input x\ninput t index\ny = cross_entropy(x, t)\n"
                    "output y\n"));
  request.inputs.resize(2);
  request.inputs[0].dims = {4, 3};
  request.inputs[1].dtype = DataType::kI64;
  request.inputs[1].dims = {4};
  const auto operation = *ProgramOperation::Make(std::move(request));
  for (const bool is_shared : {false, true}) {
    const KeptMemory logits(std::string(48, '\0'), Alignment::kUsable);
    const KeptMemory indices(std::string(32, '\0'), Alignment::kUsable);
    TensorPlaces places;
    places.operands = {logits.place(), indices.place()};
    for (TensorPlace& place : places.operands) place.is_shared = is_shared;
    places.results.resize(1);
    auto memory = std::make_shared<CallMemory>(
        kBudget, 0, 0, [](const auto& task) { task(); });
    auto reservation = *memory->budget.TryReserve(kCallOverheadBytes);
    BoundTensors tensors(memory);
    ASSERT_TRUE(tensors.Bind(*operation, std::move(places), &reservation).ok());
    const RunBuffers run = *tensors.BringIn(Onednn(), 1);
    EXPECT_EQ(run.operands[0], logits.place().data);
    EXPECT_EQ(run.operands[1] == indices.place().data, !is_shared);
    // The run doesn't see bytes that the client writes now.
    std::memset(indices.place().data, 0x7f, 32);
    EXPECT_EQ(*static_cast<const std::byte*>(run.operands[1]) == std::byte(0),
              is_shared);
    EXPECT_EQ(tensors.copied_bytes(), is_shared ? 32 : 0);
  }
}

}  // namespace
}  // namespace convgrad
