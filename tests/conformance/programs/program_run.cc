#include "tests/conformance/programs/program_run.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "backends/core/logical_tensor.h"
#include "backends/core/status.h"
#include "gtest/gtest.h"
#include "tests/conformance/tensor_fill.h"

namespace convgrad::testing_support {
namespace {

using Operands = std::vector<GuardedBuffer>;

// Returns options with CONVGRAD_TEST_THREADS threads, otherwise 1.
PlanOptions Options() {
  const char* text = std::getenv("CONVGRAD_TEST_THREADS");
  PlanOptions options;
  options.threads = text == nullptr ? 1 : std::max(1, std::atoi(text));
  return options;
}

// CheckSupport may accept an operation that only planning refuses, but not the
// reverse.
absl::StatusOr<std::unique_ptr<Plan>> MakePlan(
    const Backend& backend, const ProgramOperation& operation) {
  const absl::Status support = backend.CheckSupport(operation);
  auto plan = backend.MakePlan(operation, Options());
  if (!support.ok()) {
    EXPECT_EQ(support.code(), absl::StatusCode::kUnimplemented) << support;
    EXPECT_FALSE(plan.ok())
        << "refused by CheckSupport but not by MakePlan: " << support;
    return support;
  }
  return plan;
}

GuardedBuffer Packed(const TensorDescriptor& descriptor, const Values& values) {
  GuardedBuffer buffer(*ByteSize(descriptor));
  StoreLogical(descriptor, values, buffer.data());
  return buffer;
}

absl::StatusOr<RunTimes> RunInQuanta(const Plan& plan,
                                     const RunBuffers& buffers) {
  RunTimes times;
  for (int quantum = 0; quantum < plan.quanta(); ++quantum) {
    ASSIGN_OR_RETURN(times, plan.RunQuantum(buffers, quantum));
  }
  return times;
}

// Runs `plan`. Results and scratch start as `fill`.
absl::StatusOr<std::vector<GuardedBuffer>> RunOnce(
    const Plan& plan, const ProgramOperation& operation,
    const Operands& operands, uint8_t fill) {
  RunBuffers buffers(operands.size());
  for (size_t i = 0; i < operands.size(); ++i) {
    buffers.operands[i] = operands[i].data();
  }
  std::vector<GuardedBuffer> results;
  for (const TensorUse& use : operation.ResultUses()) {
    results.emplace_back(*ByteSize(*use.tensor), fill);
    buffers.results.push_back(results.back().data());
  }
  GuardedBuffer scratch(plan.scratch_bytes(), fill);
  buffers.scratch = absl::MakeSpan(scratch.data(), scratch.size());
  const auto times = fill == 0 ? plan.Run(buffers) : RunInQuanta(plan, buffers);
  RETURN_IF_ERROR(times.status());
  EXPECT_TRUE(scratch.GuardsIntact()) << "wrote beyond its scratch";
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_TRUE(results[i].GuardsIntact()) << "wrote beyond result " << i;
  }
  return results;
}

using Results = std::vector<GuardedBuffer>;

// Runs twice, with other bytes at the start and once by quanta. The results
// must be equal, so every byte of them was written. A tape is compared by what
// a backward reads (RunProgramWithTape). Returns the results of both runs.
absl::StatusOr<std::pair<Results, Results>> RunTwice(
    const Plan& plan, const ProgramOperation& operation,
    const Operands& operands) {
  std::vector<std::vector<std::byte>> before;
  for (const GuardedBuffer& operand : operands) {
    before.push_back(operand.Bytes());
  }
  ASSIGN_OR_RETURN(auto results, RunOnce(plan, operation, operands, 0xff));
  ASSIGN_OR_RETURN(auto again, RunOnce(plan, operation, operands, 0));
  const bool has_tape = operation.request().part == ProgramPart::kForwardTape;
  for (size_t i = 0; i < results.size() - (has_tape ? 1 : 0); ++i) {
    EXPECT_TRUE(results[i].Bytes() == again[i].Bytes())
        << "two runs differ in result " << i;
  }
  for (size_t i = 0; i < operands.size(); ++i) {
    EXPECT_TRUE(operands[i].GuardsIntact() && operands[i].Bytes() == before[i])
        << "wrote to operand " << i;
  }
  return std::pair(std::move(results), std::move(again));
}

void AddParameters(const Program& program, const ProgramData& data,
                   Operands* operands) {
  for (const ProgramParameter& parameter : program.parameters) {
    operands->push_back(
        Packed(ParameterDescriptor(parameter), data.values.at(parameter.name)));
  }
}

Operands ForwardOperands(const ProgramOperation& operation,
                         const ProgramData& data) {
  Operands operands;
  const Program& program = operation.program();
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    operands.push_back(Packed(operation.request().inputs[i],
                              data.values.at(program.inputs[i].name)));
  }
  AddParameters(program, data, &operands);
  if (operation.has_randomness()) {
    operands.emplace_back(static_cast<int64_t>(sizeof(kDropoutSeed)));
    std::memcpy(operands.back().data(), &kDropoutSeed, sizeof(kDropoutSeed));
  }
  return operands;
}

// Reads results in the order of ProgramOperation's table.
class ResultReader {
 public:
  ResultReader(const ProgramOperation& operation,
               const std::vector<GuardedBuffer>& results)
      : operation_(operation),
        uses_(operation.ResultUses()),
        results_(results) {}

  void ReadForward(ProgramOutcome* outcome) {
    const Program& program = operation_.program();
    for (const std::string& name : operation_.request().fetched) {
      outcome->values[name] = Next();
    }
    for (const size_t index : UpdatedStatistics(program)) {
      outcome->values[program.parameters[index].name] = Next();
    }
  }

  void ReadGradients(ProgramOutcome* outcome) {
    const Program& program = operation_.program();
    for (size_t i = 0; i < program.inputs.size(); ++i) {
      if (!operation_.request().input_gradients[i]) continue;
      outcome->gradients[program.inputs[i].name] = Next();
    }
    if (!operation_.request().parameter_gradients) return;
    for (const ProgramParameter& parameter : program.parameters) {
      if (parameter.trainable) outcome->gradients[parameter.name] = Next();
    }
  }

 private:
  Values Next() {
    const size_t i = next_++;
    return LoadLogical(*uses_[i].tensor, results_[i].data());
  }

  const ProgramOperation& operation_;
  const TensorUses uses_;
  const std::vector<GuardedBuffer>& results_;
  size_t next_ = 0;
};

// Returns the plan of an operation with a tape. Its size is computed first and
// stored in `request`.
absl::StatusOr<std::unique_ptr<Plan>> PlanWithTape(const Backend& backend,
                                                   ProgramRequest* request) {
  ASSIGN_OR_RETURN(const auto operation, ProgramOperation::Make(*request));
  ASSIGN_OR_RETURN(auto plan, MakePlan(backend, *operation));
  request->tape_bytes = plan->tape_bytes();
  return plan;
}

}  // namespace

absl::StatusOr<ProgramOutcome> RunProgram(const Backend& backend,
                                          ProgramRequest request,
                                          const ProgramData& data) {
  ASSIGN_OR_RETURN(const auto operation, ProgramOperation::Make(request));
  ASSIGN_OR_RETURN(const auto plan, MakePlan(backend, *operation));
  ASSIGN_OR_RETURN(
      const auto results,
      RunTwice(*plan, *operation, ForwardOperands(*operation, data)));
  ProgramOutcome outcome;
  ResultReader reader(*operation, results.first);
  reader.ReadForward(&outcome);
  if (request.part == ProgramPart::kTrain) reader.ReadGradients(&outcome);
  return outcome;
}

absl::StatusOr<ProgramOutcome> RunProgramWithTape(const Backend& backend,
                                                  ProgramRequest forward,
                                                  const ProgramData& data) {
  forward.part = ProgramPart::kForwardTape;
  ASSIGN_OR_RETURN(const auto forward_plan, PlanWithTape(backend, &forward));
  ProgramRequest backward = forward;
  backward.part = ProgramPart::kBackward;
  backward.fetched.clear();
  backward.output_gradients = forward.program->outputs;
  ASSIGN_OR_RETURN(const auto backward_plan, PlanWithTape(backend, &backward));
  EXPECT_EQ(forward.tape_bytes, backward.tape_bytes);

  ASSIGN_OR_RETURN(const auto operation, ProgramOperation::Make(forward));
  ASSIGN_OR_RETURN(auto results, RunTwice(*forward_plan, *operation,
                                          ForwardOperands(*operation, data)));
  ProgramOutcome outcome;
  ResultReader(*operation, results.first).ReadForward(&outcome);

  ASSIGN_OR_RETURN(const auto gradients, ProgramOperation::Make(backward));
  Operands operands;
  operands.push_back(std::move(results.first.back()));
  for (const std::string& name : backward.output_gradients) {
    TensorDescriptor descriptor;
    descriptor.dims = gradients->shapes().dims.at(name);
    operands.push_back(Packed(descriptor, data.output_gradients.at(name)));
  }
  AddParameters(*forward.program, data, &operands);
  ASSIGN_OR_RETURN(const auto given,
                   RunTwice(*backward_plan, *gradients, operands));
  ResultReader(*gradients, given.first).ReadGradients(&outcome);
  operands[0] = std::move(results.second.back());
  ASSIGN_OR_RETURN(const auto again,
                   RunOnce(*backward_plan, *gradients, operands, 0xff));
  for (size_t i = 0; i < again.size(); ++i) {
    EXPECT_TRUE(again[i].Bytes() == given.first[i].Bytes())
        << "the tapes of two runs differ in what they give, result " << i;
  }
  return outcome;
}

}  // namespace convgrad::testing_support
