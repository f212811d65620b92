// Programs whose networks a test builds step by step. `BuffersOf` runs a
// network on the test's values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/core/program/program_operation.h"
#include "backends/onednn/networks/schedule/network_builder.h"
#include "gtest/gtest.h"

namespace convgrad::onednn {

// Returns the operation of the program `text`. Requires: `text` is a program
// whose inputs have these dims.
inline std::shared_ptr<const ProgramOperation> OperationOf(
    const std::string& text, const std::vector<Dims>& inputs,
    ProgramPart part = ProgramPart::kForward, DataType dtype = DataType::kF32) {
  const auto program = ParseProgram(text);
  EXPECT_TRUE(program.ok()) << program.status();
  ProgramRequest request;
  request.program = std::make_shared<const convgrad::Program>(*program);
  request.part = part;
  request.compute_dtype = dtype;
  request.inputs.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) request.inputs[i].dims = inputs[i];
  request.input_gradients.assign(inputs.size(), part == ProgramPart::kTrain);
  const auto operation = ProgramOperation::Make(std::move(request));
  EXPECT_TRUE(operation.ok()) << operation.status();
  return *operation;
}

// Its inputs are x and t, its parameters w (used twice), b and m (fixed).
inline constexpr char kTwoLayers[] =
    "input x\ninput t\n"
    "parameter w [2, 2, 1]\nparameter b [2]\nparameter m [2, 2, 1] fixed\n"
    "a = conv(x, w, b)\nc = conv(a, w)\nd = conv(c, m)\ny = mse(d, t)\n"
    "output y\n";

inline std::shared_ptr<const ProgramOperation> TwoLayers(
    ProgramPart part, DataType dtype = DataType::kF32) {
  return OperationOf(kTwoLayers, {{1, 2, 1}, {1, 2, 1}}, part, dtype);
}

// Returns an operand or result's position.
inline size_t PositionOf(NetworkBuilder& builder, BufferId buffer, Area area) {
  const Buffer& found = builder.buffers()[buffer];
  EXPECT_EQ(found.area, area);
  return found.index;
}

// The bytes of a schedule's buffers, each in its own memory.
class BuffersOf {
 public:
  explicit BuffersOf(const Schedule& schedule) : schedule_(schedule) {
    for (const Buffer& buffer : schedule.buffers()) {
      bytes_.emplace_back(std::max<int64_t>(buffer.bytes, 1), std::byte{0xff});
    }
  }

  // Sets the operand at `index`. Several buffers may hold it.
  template <typename T>
  void SetOperand(size_t index, const std::vector<T>& values) {
    for (size_t i = 0; i < bytes_.size(); ++i) {
      const Buffer& buffer = schedule_.buffers()[i];
      if (buffer.area != Area::kOperand || buffer.index != index) continue;
      ASSERT_EQ(buffer.bytes, std::ssize(values) * int64_t{sizeof(T)});
      std::memcpy(bytes_[i].data(), values.data(), buffer.bytes);
    }
  }
  template <typename T>
  void Set(BufferId buffer, const std::vector<T>& values) {
    ASSERT_EQ(std::ssize(bytes_[buffer]),
              std::ssize(values) * int64_t{sizeof(T)});
    std::memcpy(bytes_[buffer].data(), values.data(), bytes_[buffer].size());
  }
  template <typename T>
  std::vector<T> Get(BufferId buffer) const {
    std::vector<T> values(bytes_[buffer].size() / sizeof(T));
    std::memcpy(values.data(), bytes_[buffer].data(),
                values.size() * sizeof(T));
    return values;
  }

  // Runs all steps. Requires: all steps are functions of this repository.
  void Run() {
    std::vector<std::byte*> addresses;
    for (auto& bytes : bytes_) addresses.push_back(bytes.data());
    const RunContext context(addresses, 1);
    for (const Step& step : schedule_.steps()) {
      ASSERT_TRUE(step.function) << step.kind;
      step.function(context);
    }
  }

 private:
  const Schedule& schedule_;
  std::vector<std::vector<std::byte>> bytes_;
};

}  // namespace convgrad::onednn
