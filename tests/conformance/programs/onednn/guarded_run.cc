#include "tests/conformance/programs/onednn/guarded_run.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <utility>

#include "gtest/gtest.h"

namespace convgrad {
namespace {

constexpr int64_t kGuard = 256;
constexpr std::byte kCanary{0xa5};
// Four such bytes are a NaN.
constexpr std::byte kUnwritten{0xff};

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() &&
         text.compare(text.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

GuardedBytes::GuardedBytes(int64_t bytes)
    : bytes_(bytes), memory_(bytes + 2 * kGuard + 64, kCanary) {
  auto address = reinterpret_cast<uintptr_t>(memory_.data()) + kGuard;
  address = (address + 63) / 64 * 64;
  start_ = reinterpret_cast<std::byte*>(address);
  std::fill(start_, start_ + bytes, kUnwritten);
}

bool GuardedBytes::is_intact() const {
  const auto is_canary = [](std::byte b) { return b == kCanary; };
  const std::byte* const begin = memory_.data();
  return std::all_of(begin, static_cast<const std::byte*>(start_), is_canary) &&
         std::all_of(static_cast<const std::byte*>(start_) + bytes_,
                     begin + memory_.size(), is_canary);
}

std::vector<float> GuardedRun::Floats(size_t result) const {
  std::vector<float> floats(results.at(result).size() / sizeof(float));
  std::memcpy(floats.data(), results[result].data(), results[result].size());
  return floats;
}

std::shared_ptr<const ProgramOperation> MakeProgramOperation(
    const std::string& text, ProgramRequest request) {
  auto program = ParseProgram(text);
  EXPECT_TRUE(program.ok()) << program.status();
  request.program = std::make_shared<const Program>(*std::move(program));
  auto operation = ProgramOperation::Make(std::move(request));
  EXPECT_TRUE(operation.ok()) << operation.status();
  return *operation;
}

std::vector<std::vector<std::byte>> RandomOperands(
    const ProgramOperation& operation, int64_t classes, int seed) {
  std::mt19937 random(seed);
  const TensorUses uses = operation.OperandUses();
  const Program& program = operation.program();
  const size_t first_parameter =
      operation.request().part == ProgramPart::kBackward
          ? 1 + operation.request().output_gradients.size()
          : program.inputs.size();
  std::vector<std::vector<std::byte>> operands;
  for (size_t i = 0; i < uses.size(); ++i) {
    const TensorDescriptor& tensor = *uses[i].tensor;
    std::vector<std::byte>& bytes = operands.emplace_back(*ByteSize(tensor));
    const bool is_input =
        first_parameter == program.inputs.size() && i < program.inputs.size();
    const bool is_image =
        tensor.dtype == DataType::kU8 || tensor.dtype == DataType::kU16;
    if (is_image && !is_input) continue;  // A tape.
    const bool is_variance =
        i >= first_parameter &&
        i - first_parameter < program.parameters.size() &&
        EndsWith(program.parameters[i - first_parameter].name, "var");
    for (int64_t e = 0; e < ElementCount(tensor); ++e) {
      double value = std::normal_distribution<double>(0, 1)(random);
      if (tensor.dtype == DataType::kI64) {
        value = static_cast<double>(random() % classes);
      }
      if (is_image)
        value = random() % (tensor.dtype == DataType::kU8 ? 256 : 65536);
      if (is_variance) value = 0.5 + value * value;
      StoreRounded(tensor.dtype, value,
                   bytes.data() + e * ByteSizeOf(tensor.dtype));
    }
  }
  return operands;
}

GuardedRun RunProgram(const Backend& backend, const ProgramOperation& operation,
                      std::vector<std::vector<std::byte>> operands) {
  const auto plan = backend.MakePlan(operation, {.threads = 2});
  EXPECT_TRUE(plan.ok()) << plan.status();
  if (!plan.ok()) return {};
  return RunPlan(**plan, operation, std::move(operands), /*in_quanta=*/false);
}

// The buffers of one run.
struct GuardedBuffers {
  std::vector<GuardedBytes> operands, results;
  GuardedBytes scratch;
  RunBuffers buffers;

  GuardedBuffers(const Plan& plan, const ProgramOperation& operation,
                 const std::vector<std::vector<std::byte>>& bytes)
      : scratch(plan.scratch_bytes()), buffers(bytes.size()) {
    for (size_t i = 0; i < bytes.size(); ++i) {
      operands.emplace_back(static_cast<int64_t>(bytes[i].size()));
      std::memcpy(operands[i].data(), bytes[i].data(), bytes[i].size());
      buffers.operands[i] = operands[i].data();
    }
    for (const TensorUse& use : operation.ResultUses()) {
      results.emplace_back(*ByteSize(*use.tensor));
      buffers.results.push_back(results.back().data());
    }
    buffers.scratch = {scratch.data(), static_cast<size_t>(scratch.size())};
  }
};

absl::Status StatusOfRun(const Plan& plan, const ProgramOperation& operation,
                         const std::vector<std::vector<std::byte>>& operands) {
  const GuardedBuffers guarded(plan, operation, operands);
  return plan.Run(guarded.buffers).status();
}

GuardedRun RunPlan(const Plan& plan, const ProgramOperation& operation,
                   std::vector<std::vector<std::byte>> operands,
                   bool in_quanta) {
  const GuardedBuffers guarded(plan, operation, operands);
  for (int quantum = 0; quantum < (in_quanta ? plan.quanta() : 1); ++quantum) {
    const auto times = in_quanta ? plan.RunQuantum(guarded.buffers, quantum)
                                 : plan.Run(guarded.buffers);
    EXPECT_TRUE(times.ok()) << times.status();
  }
  EXPECT_TRUE(guarded.scratch.is_intact()) << "bytes beside scratch changed";
  for (size_t i = 0; i < operands.size(); ++i) {
    EXPECT_TRUE(std::equal(operands[i].begin(), operands[i].end(),
                           guarded.operands[i].data()))
        << "operand " << i << " was written";
  }
  GuardedRun run;
  for (size_t i = 0; i < guarded.results.size(); ++i) {
    const GuardedBytes& result = guarded.results[i];
    EXPECT_TRUE(result.is_intact())
        << "bytes beside result " << i << " were written";
    run.results.emplace_back(result.data(), result.data() + result.size());
  }
  run.operands = std::move(operands);
  return run;
}

TapedRun RunWithTape(const Backend& backend, const std::string& text,
                     ProgramRequest request,
                     std::vector<std::string> output_gradients,
                     std::vector<std::byte> gradient) {
  request.part = ProgramPart::kForwardTape;
  const std::vector<bool> input_gradients =
      std::exchange(request.input_gradients, {});
  const auto first = MakeProgramOperation(text, request);
  const auto plan = backend.MakePlan(*first, {.threads = 2});
  EXPECT_TRUE(plan.ok()) << plan.status();
  request.tape_bytes = (*plan)->tape_bytes();
  const auto forward = MakeProgramOperation(text, request);
  auto operands = RandomOperands(*forward, 5);
  TapedRun run;
  run.forward = RunProgram(backend, *forward, operands);
  request.part = ProgramPart::kBackward;
  request.fetched.clear();
  request.output_gradients = std::move(output_gradients);
  request.input_gradients = input_gradients;
  const auto backward = MakeProgramOperation(text, request);
  // A session has new statistics by then.
  for (const size_t index : UpdatedStatistics(forward->program())) {
    std::fill(operands[2 + index].begin(), operands[2 + index].end(),
              std::byte{0xff});
  }
  operands.erase(operands.begin(), operands.begin() + 2);
  operands.insert(operands.begin(), std::move(gradient));
  operands.insert(operands.begin(), run.forward.results.back());
  run.backward = RunProgram(backend, *backward, operands);
  return run;
}

double ErrorOf(const std::vector<float>& got,
               const std::vector<float>& expected) {
  double error = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    error = std::max(error, std::abs(double{got[i]} - expected[i]));
  }
  return error;
}

}  // namespace convgrad
