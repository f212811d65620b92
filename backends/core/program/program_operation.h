// Operations on whole programs, as scheduling and backends see them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/operation.h"
#include "backends/core/program/program.h"
#include "backends/core/program/program_shapes.h"

namespace convgrad {

// What part of a program's work an operation does.
enum class ProgramPart {
  // From inputs to outputs.
  kForward,
  // Likewise, and keeps a tape: what the backward needs.
  kForwardTape,
  // From a tape and gradients of outputs to gradients.
  kBackward,
  // From inputs to gradients of the first output, a scalar loss: forward and
  // backward in one, without a tape that outlives it.
  kTrain,
};

// What is to be computed. Value type.
struct ProgramRequest {
  std::shared_ptr<const Program> program;  // valid
  ProgramPart part = ProgramPart::kForward;
  // By program input: what the caller sends (of kBackward: has sent). Row-major
  // layouts; activations NCX or NXC, I64 indices NCX.
  std::vector<TensorDescriptor> inputs;
  // F32 or BF16: of activations, and of parameters as operands.
  DataType compute_dtype = DataType::kF32;
  // Forwards: the results of steps to be returned, none twice; outputs by
  // default.
  std::vector<std::string> fetched;
  // Backward: the outputs whose gradients are given, at least one, none twice.
  std::vector<std::string> output_gradients;
  // Backward and train: by program input, whether its gradient is wanted.
  std::vector<bool> input_gradients;
  // Backward and train: whether trainable parameters' gradients are.
  bool parameter_gradients = true;
  // Train and tapes: computes values again in the backward rather than keep
  // them. Less memory, more time, the same bits. A backward has what the
  // forward of its tape had.
  bool recompute = false;
  // Whether steps may be computed together, so that values between them are
  // neither rounded nor written. Without, each value can be fetched. A backward
  // has what the forward of its tape had.
  bool fuse = true;
  // Of kForwardTape and kBackward: bytes of the tape, as Plan::tape_bytes()
  // says. Not part of the text, so that a plan can be asked for it first.
  int64_t tape_bytes = 0;
};

// Positions of tensors in RunBuffers:
//
//   part          operands                             results
//   kForward      inputs, parameters, randomness       fetched, statistics
//   kForwardTape  inputs, parameters, randomness       fetched, statistics,
//                                                      tape
//   kBackward     tape, output gradients, parameters   input gradients,
//                                                      parameter gradients
//   kTrain        inputs, parameters, randomness       fetched, statistics,
//                                                      input gradients,
//                                                      parameter gradients
//
// inputs, parameters: all of the program's, in its order. Randomness: I64 [2],
// the session's seed and its count of training runs; only there if the program
// has a dropout that is training. Statistics: UpdatedStatistics(program), new
// values. Output gradients: in the request's order. Input gradients: those that
// are wanted. Parameter gradients: of all trainable parameters, in the
// program's order, or none. Parameters are f32 and row-major (OIX, NCX),
// num_batches_tracked I64 []; fetched values and gradients f32 and row-major.
// A tape is U8 [tape_bytes]: what is in it is the backend's business, and so
// are bytes that no backward reads, which needn't be written.
class ProgramOperation final : public Operation {
 public:
  // Checks the request against the program and infers its shapes.
  // Errors: kInvalidArgument naming field, found and expected; kUnimplemented
  // of a compute dtype that no backend has.
  static absl::StatusOr<std::shared_ptr<const ProgramOperation>> Make(
      ProgramRequest request);

  const ProgramRequest& request() const { return request_; }
  const Program& program() const { return *request_.program; }
  const ProgramShapes& shapes() const { return shapes_; }
  bool has_randomness() const { return randomness_.has_value(); }

  // "run", "backward_program" or "train".
  absl::string_view name() const override;
  std::string text() const override;
  DataType dtype() const override { return request_.compute_dtype; }
  // A backward counts twice its forward, a train three times.
  int64_t flops() const override;
  TensorUses OperandUses() const override;
  TensorUses ResultUses() const override;
  // Of a forward without a tape, whose parameters may be the same for many:
  // all of them.
  std::vector<size_t> weight_positions() const override;
  // Not cut along the batch, which batch_norm forbids: batch() is 1.
  std::unique_ptr<const Operation> WithBatch(int64_t items) const override;

 private:
  ProgramOperation() = default;
  void SetOperands();
  void SetResults();

  ProgramRequest request_;
  ProgramShapes shapes_;
  std::string program_text_;
  std::optional<TensorDescriptor> randomness_;
  // In the order of the table above.
  std::vector<TensorDescriptor> operands_;
  std::vector<TensorDescriptor> results_;
};

// Returns null if `operation` is none.
const ProgramOperation* AsProgram(const Operation& operation);

}  // namespace convgrad
