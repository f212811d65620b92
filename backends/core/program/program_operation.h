// `ProgramOperation` is an operation on a whole program, for scheduling and
// backends.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/operation.h"
#include "backends/core/program/program.h"
#include "backends/core/program/program_shapes.h"

namespace convgrad {

// The part of a program's work that an operation does.
enum class ProgramPart {
  // Computes outputs from inputs.
  kForward,
  // Does the same, and writes a tape, i.e. the values that a backward needs.
  kForwardTape,
  // Computes gradients from a tape and gradients of outputs.
  kBackward,
  // Computes forward and backward in one run, from inputs to the gradients of
  // the first output, a scalar loss. No tape remains.
  kTrain,
};

// The requested computation. Value type.
struct ProgramRequest {
  std::shared_ptr<const Program> program;  // valid
  ProgramPart part = ProgramPart::kForward;
  // The caller's tensor for each program input; for kBackward, those of the
  // forward. Row-major layouts; activations NCX or NXC, I64 indices NCX.
  std::vector<TensorDescriptor> inputs;
  // Dtype of activations, and of parameters as operands: F32 or BF16.
  DataType compute_dtype = DataType::kF32;
  // Forwards: results of steps to return, none twice; by default the outputs.
  std::vector<std::string> fetched;
  // Backward: outputs with gradients, at least one, none twice.
  std::vector<std::string> output_gradients;
  // Backward and train: for each program input, whether to return its gradient.
  std::vector<bool> input_gradients;
  // Backward and train: whether to return trainable parameters' gradients.
  bool parameter_gradients = true;
  // Train and tapes: recomputes values in the backward instead of keeping them.
  // Less memory, more time, the same bits. A backward has the value of its
  // tape's forward.
  bool recompute = false;
  // If true, steps may be fused, so that values between them are neither
  // rounded nor written. If false, every value can be fetched. A backward has
  // the value of its tape's forward.
  bool fuse = true;
  // If true, convolutions may be computed by Winograd's algorithm, with other
  // rounding errors. A backward has the value of its tape's forward.
  bool fast = false;
  // kForwardTape and kBackward: bytes of the tape, from Plan::tape_bytes(). Not
  // part of the text, so that a caller can ask the plan for it first.
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
// * Inputs and parameters: all of the program's, in its order. Parameters are
//   f32 and row-major (OIX, NCX), except I64 parameters.
// * Randomness: I64 [2], the session's seed and its count of training runs;
// only
//   if the program has a dropout that is training.
// * Fetched values: f32 and row-major.
// * Statistics: new values of UpdatedStatistics(program).
// * Output gradients: in the request's order.
// * Input gradients: the requested ones. Parameter gradients: of all trainable
//   parameters, in the program's order, or none. All are f32 and row-major.
// * Tape: U8 [tape_bytes]. The backend defines its contents. It needn't write
//   bytes that no backward reads.
//
// The batch can't be cut, because batch_norm forbids that.
class ProgramOperation final : public Operation {
 public:
  // Checks the request against the program and infers its shapes.
  // Errors: kInvalidArgument naming field, found and expected; kUnimplemented
  // for a compute dtype that no backend supports.
  static absl::StatusOr<std::shared_ptr<const ProgramOperation>> Make(
      ProgramRequest request);

  const ProgramRequest& request() const { return request_; }
  const Program& program() const { return *request_.program; }
  const ProgramShapes& shapes() const { return shapes_; }
  bool has_randomness() const { return randomness_.has_value(); }

  // Returns "run", "backward_program" or "train".
  absl::string_view name() const override;
  std::string text() const override;
  DataType dtype() const override { return request_.compute_dtype; }
  // A backward counts twice its forward, a train three times.
  int64_t flops() const override;
  TensorUses OperandUses() const override;
  TensorUses ResultUses() const override;
  // Returns all parameters for a forward without a tape, because many forwards
  // may have the same parameters.
  std::vector<size_t> weight_positions() const override;

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

// Returns `operation` if it is a ProgramOperation, else null.
const ProgramOperation* AsProgram(const Operation& operation);

}  // namespace convgrad
