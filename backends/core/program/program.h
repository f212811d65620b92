// A `Program` is a whole network as an immutable list of steps, from inputs and
// kept parameters to outputs. It has no shapes of activations and no batch
// size; these follow from the inputs of each run (program_shapes.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "backends/core/program/operators/operator_table.h"
#include "backends/core/program/operators/program_step.h"
#include "backends/core/tensor_descriptor.h"

namespace convgrad {

// A tensor that a run receives. The caller chooses its dtype: any floating type
// for activations, U8 or U16 for images, I64 for indices.
struct ProgramInput {
  std::string name;
  bool is_index = false;  // indices, such as classes: I64

  friend bool operator==(const ProgramInput&, const ProgramInput&) = default;
};

// A kept tensor that steps use: a weight, a running statistic, which a
// batch_norm in training updates, or an index. F32, except num_batches_tracked
// of batch_norm and the index of index_select, which are I64.
struct ProgramParameter {
  std::string name;
  Dims dims;
  DataType dtype = DataType::kF32;
  // Whether a backward computes its gradient. Statistics are never trainable.
  bool trainable = true;

  friend bool operator==(const ProgramParameter&,
                         const ProgramParameter&) = default;
};

// Maximum number of steps of a program.
inline constexpr size_t kMaxProgramSteps = 10'000;

// Value type.
struct Program {
  std::vector<ProgramInput> inputs;
  std::vector<ProgramParameter> parameters;
  std::vector<ProgramStep> steps;
  // Results of steps, at least one and none twice. If the program has a loss of
  // its own, the first output is a scalar.
  std::vector<std::string> outputs;

  friend bool operator==(const Program&, const Program&) = default;
};

// Checks everything that needs no input shapes: names, operands, attributes,
// parameter ranks, that each value is assigned once and before its use, and
// that an output needs it. A name is 1 to 239 bytes of printable ASCII without
// spaces and any of / \ , ( ) = #, and isn't "none".
// Further rules:
// * A loss, which is a scalar, isn't an operand. An index input is the index of
//   index_select or the target of cross_entropy, which may be a value instead.
// * A batch_norm that isn't training has running statistics.
// * A batch_norm that is training updates its running statistics, if it has
// any.
//   They are fixed parameters, and no batch_norm that isn't training reads
//   them. Several steps may update the same statistics, in their order.
// Errors: kInvalidArgument naming step ("steps[3] (conv1)"), operand or
// attribute, found and expected; kUnimplemented naming an operator of the
// contract that isn't built.
absl::Status Validate(const Program& program);

// Returns the text form, one declaration or step a line:
//
//   input x
//   input target index
//   parameter conv1.weight [64, 3, 7, 7]
//   parameter bn1.running_mean [64] fixed
//   parameter bn1.num_batches_tracked [] i64 fixed
//   a = conv(x, conv1.weight, stride=2, padding=3)
//   b = batch_norm(a, none, none, bn1.running_mean, ..., training=true)
//   output b
//
// where `none` is an omitted operand. Attributes are sorted by name; words have
// no quotes, lists have brackets, and a floating number has a point or an
// exponent, so that 1 and 1.0 stay different.
// ParseProgram(ToString(p)) == p for every valid p.
std::string ToString(const Program& program);

// Reads the text form; "#" starts a comment, empty lines are skipped. The
// result is validated. Errors: kInvalidArgument naming line and token.
absl::StatusOr<Program> ParseProgram(absl::string_view text);

// Returns the descriptor that the parameter's kept tensor must have: its dtype
// and dims, row-major (NCX; OIX has the same bytes).
TensorDescriptor ParameterDescriptor(const ProgramParameter& parameter);

// Returns the parameter `name`, null if there is none.
const ProgramParameter* FindParameter(const Program& program,
                                      absl::string_view name);

// Returns a step's name in errors, e.g. "steps[3] (conv1)".
std::string StepPath(const Program& program, size_t step);

// Returns the parameters that a run writes, by index into
// Program::parameters, ascending: the statistics of batch_norms that have
// `training` set.
std::vector<size_t> UpdatedStatistics(const Program& program);

}  // namespace convgrad
