#include "backends/reference/reference_program_run.h"

#include <cstring>
#include <string>

#include "absl/functional/function_ref.h"
#include "backends/core/checked_math.h"
#include "backends/core/logical_tensor.h"
#include "backends/core/program/philox.h"
#include "backends/core/status.h"
#include "backends/reference/exact_program.h"

namespace convgrad {
namespace {

// Returns a function that rounds each number once to the precision in which it
// is written.
auto RoundingOf(const ProgramOperation& operation) {
  return
      [compute_dtype = operation.dtype()](Precision precision, Values* values) {
        if (precision == Precision::kIntermediate) return;
        const DataType dtype =
            precision == Precision::kF32 ? DataType::kF32 : compute_dtype;
        for (double& value : *values) {
          float stored = 0;
          StoreRounded(dtype, value, &stored);
          value = LoadAsDouble(dtype, &stored);
        }
      };
}

// Reads operands and writes results in the order of ProgramOperation's table.
class TensorsInOrder {
 public:
  TensorsInOrder(const ProgramOperation& operation, const RunBuffers& buffers)
      : operands_(operation.OperandUses()),
        results_(operation.ResultUses()),
        buffers_(buffers) {}

  const void* TakeOperand() { return buffers_.operands[next_operand_++]; }
  void* TakeResult() { return buffers_.results[next_result_++]; }

  Values Load() {
    const TensorDescriptor& descriptor = *operands_[next_operand_].tensor;
    return LoadLogical(descriptor, TakeOperand());
  }
  void Store(const Values& values) {
    const TensorDescriptor& descriptor = *results_[next_result_].tensor;
    StoreLogical(descriptor, values, TakeResult());
  }

 private:
  const TensorUses operands_, results_;
  const RunBuffers& buffers_;
  size_t next_operand_ = 0, next_result_ = 0;
};

// The tape is one block of bytes: the seed, then every input and result as
// doubles, each at a multiple of this.
constexpr int64_t kAlignment = 64;

// Calls visit(name, offset, count) for each value, and returns the bytes.
int64_t ForEachPlace(
    const ProgramOperation& operation,
    absl::FunctionRef<void(const std::string&, int64_t, int64_t)> visit) {
  int64_t offset = kAlignment;  // after the seed
  const auto place = [&](const std::string& name) {
    const int64_t count = CountOf(operation.shapes().dims.at(name));
    visit(name, offset, count);
    const auto bytes = count * static_cast<int64_t>(sizeof(double));
    offset += CeilDiv(bytes, kAlignment) * kAlignment;
  };
  for (const ProgramInput& input : operation.program().inputs) {
    place(input.name);
  }
  for (const ProgramStep& step : operation.program().steps) place(step.result);
  return offset;
}

// Returns the bytes of the tape.
int64_t TapeBytesOf(const ProgramOperation& operation) {
  return ForEachPlace(operation, [](const std::string&, int64_t, int64_t) {});
}

// Writes all of the tape.
void StoreTape(const ProgramOperation& operation, const DropoutSeed& seed,
               const NamedValues& values, void* tape) {
  auto* bytes = static_cast<std::byte*>(tape);
  std::memset(bytes, 0, TapeBytesOf(operation));
  std::memcpy(bytes, &seed, sizeof(seed));
  ForEachPlace(operation, [&](const std::string& name, int64_t offset,
                              int64_t count) {
    std::memcpy(bytes + offset, values.at(name).data(), count * sizeof(double));
  });
}

// Adds inputs and results to `values`, and returns the seed.
DropoutSeed LoadTape(const ProgramOperation& operation, const void* tape,
                     NamedValues* values) {
  const auto* bytes = static_cast<const std::byte*>(tape);
  DropoutSeed seed;
  std::memcpy(&seed, bytes, sizeof(seed));
  ForEachPlace(
      operation, [&](const std::string& name, int64_t offset, int64_t count) {
        Values& value = (*values)[name];
        value.resize(count);
        std::memcpy(value.data(), bytes + offset, count * sizeof(double));
      });
  return seed;
}

void LoadParameters(const Program& program, TensorsInOrder* tensors,
                    NamedValues* values) {
  for (const ProgramParameter& parameter : program.parameters) {
    (*values)[parameter.name] = tensors->Load();
  }
}

void StoreGradients(const ProgramOperation& operation,
                    const NamedValues& gradients, TensorsInOrder* tensors) {
  ForEachGradient(operation, [&](const std::string& name, Precision) {
    tensors->Store(gradients.at(name));
  });
}

absl::Status RunForward(const ProgramOperation& operation,
                        const RunBuffers& buffers) {
  const Program& program = operation.program();
  const auto rounding = RoundingOf(operation);
  TensorsInOrder tensors(operation, buffers);
  NamedValues values;
  for (const ProgramInput& input : program.inputs) {
    values[input.name] = tensors.Load();
  }
  LoadParameters(program, &tensors, &values);
  DropoutSeed seed;
  if (operation.has_randomness()) {
    const auto* words = static_cast<const int64_t*>(tensors.TakeOperand());
    seed = {words[0], words[1]};
  }
  RETURN_IF_ERROR(ExactForward(operation, seed, rounding, &values));
  for (const std::string& name : operation.request().fetched) {
    tensors.Store(values.at(name));
  }
  for (const size_t index : UpdatedStatistics(program)) {
    tensors.Store(values.at(program.parameters[index].name));
  }
  if (operation.request().part == ProgramPart::kForwardTape) {
    StoreTape(operation, seed, values, tensors.TakeResult());
  }
  if (operation.request().part == ProgramPart::kTrain) {
    NamedValues gradients = {{program.outputs[0], {1}}};
    ExactBackward(operation, seed, rounding, values, &gradients);
    StoreGradients(operation, gradients, &tensors);
  }
  return absl::OkStatus();
}

void RunBackward(const ProgramOperation& operation, const RunBuffers& buffers) {
  TensorsInOrder tensors(operation, buffers);
  NamedValues values, gradients;
  const DropoutSeed seed = LoadTape(operation, tensors.TakeOperand(), &values);
  for (const std::string& name : operation.request().output_gradients) {
    gradients[name] = tensors.Load();
  }
  LoadParameters(operation.program(), &tensors, &values);
  ExactBackward(operation, seed, RoundingOf(operation), values, &gradients);
  StoreGradients(operation, gradients, &tensors);
}

}  // namespace

absl::Status RunReferenceProgram(const ProgramOperation& operation,
                                 const RunBuffers& buffers) {
  if (operation.request().part != ProgramPart::kBackward) {
    return RunForward(operation, buffers);
  }
  RunBackward(operation, buffers);
  return absl::OkStatus();
}

int64_t ReferenceTapeBytes(const ProgramOperation& operation) {
  const ProgramPart part = operation.request().part;
  const bool has_tape =
      part == ProgramPart::kForwardTape || part == ProgramPart::kBackward;
  return has_tape ? TapeBytesOf(operation) : 0;
}

}  // namespace convgrad
