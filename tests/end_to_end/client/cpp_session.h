// `CppSessionTest` is the fixture for tests of the C++ client's sessions and
// networks. The functions here make tensors and a backward that adds to a kept
// sum.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backends/core/status.h"
#include "client/cpp/client.h"
#include "client/cpp/sessions/session.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/peers/test_server.h"

namespace convgrad {

using Floats = std::vector<float>;

template <typename T>
absl::Span<const std::byte> ViewOf(const std::vector<T>& values) {
  return {reinterpret_cast<const std::byte*>(values.data()),
          values.size() * sizeof(T)};
}

inline Floats FloatsIn(absl::Span<const std::byte> bytes) {
  Floats values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

inline Floats RandomFloats(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  Floats values(count);
  for (float& value : values) value = uniform(random);
  return values;
}

inline ClientOptions OptionsFor(const std::string& address) {
  ClientOptions options;
  options.server = address;
  RetryPolicy retries;
  retries.max_attempts = 100;
  retries.initial = absl::Milliseconds(1);
  retries.longest = absl::Milliseconds(20);
  options.retries = retries;
  return options;
}

// conv1d: 1 item of 2 channels of 8, 3 filters of 3.
inline const TensorDescriptor kInput{DataType::kF32, Layout::kNCX, {1, 2, 8}};
inline const TensorDescriptor kWeight{DataType::kF32, Layout::kOIX, {3, 2, 3}};
inline const TensorDescriptor kGradOutput{
    DataType::kF32, Layout::kNCX, {1, 3, 6}};
inline constexpr int64_t kInputs = 16;
inline constexpr int64_t kWeights = 18;
inline constexpr int64_t kOutputs = 18;

inline ConvProblem Problem() {
  ConvProblem problem = *Parse("conv1d_n1_c2_o3_i8_k3");
  return problem;
}

// Returns a call that adds the gradient of the kept x to the kept sum "gw".
inline OperationCall AddGradient(const Floats& grad_output) {
  OperationCall call;
  call.operation.problem = Problem();
  call.operation.direction = Direction::kBackward;
  auto& operands = call.operation.operands;
  operands[PositionOf(Operand::kInput)] = kInput;
  operands[PositionOf(Operand::kGradOutput)] = kGradOutput;
  call.kept_operands[PositionOf(Operand::kInput)] = "x";
  call.operands[PositionOf(Operand::kGradOutput)] = ViewOf(grad_output);
  call.operation.results = {{Result::kGradWeight, kWeight, 1.0f}};
  call.kept_results = {KeptResult{"gw", true}};
  return call;
}

inline Reason ReasonOf(const absl::Status& status) {
  const auto detail = DetailOf(status);
  return detail ? detail->reason : Reason::kInternal;
}

class CppSessionTest : public ::testing::Test {
 protected:
  std::unique_ptr<Session> Open(const std::string& address,
                                const SessionOptions& options = {}) {
    auto session = Session::Open(OptionsFor(address), options);
    EXPECT_TRUE(session.ok()) << session.status();
    return *std::move(session);
  }
  std::unique_ptr<Session> Open() { return Open(server_.address()); }

  TestServer server_;
};

}  // namespace convgrad
