// Makes the tensors of one run of the tool, from files or at random.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/convolution/conv_operation.h"
#include "client/cpp/aligned_buffer.h"
#include "client/cpp/client.h"
#include "client/cpp/command_line/settings/settings.h"
#include "client/cpp/placed_call.h"

namespace convgrad {

// A tensor's descriptor and bytes.
struct LocalTensor {
  TensorDescriptor descriptor;
  AlignedBuffer data;

  // Returns the elements as doubles in logical order.
  std::vector<double> Values() const;
};

// Indexed by Operand.
using LocalTensors = std::array<std::optional<LocalTensor>, kOperandCount>;

// Returns the operation that the settings describe. It has every operand that
// its direction can have, so that results can be checked; see CallFor.
// Errors: kInvalidArgument.
absl::StatusOr<ConvOperation> MakeOperation(Direction direction,
                                            const ConvProblem& problem,
                                            const Settings& settings);

// Returns the operation's operands: the settings' files, converted to the
// operation's dtype and layout, or random values.
// Errors: those of ReadOperand and CheckOperandNames.
absl::StatusOr<LocalTensors> MakeOperands(const ConvOperation& operation,
                                          const Settings& settings);

// Returns `values` rounded to the descriptor's dtype, in its layout.
absl::StatusOr<LocalTensor> TensorOf(const TensorDescriptor& descriptor,
                                     absl::Span<const double> values);

// Returns a tensor of random values. Range: standard normal, or integers from
// -4 to 4 without 0.
absl::StatusOr<LocalTensor> RandomTensor(const TensorDescriptor& descriptor,
                                         const Settings& settings, int salt);

// Returns a call of `operation` with those of `tensors` that it needs. They
// must outlive it.
OperationCall CallFor(const ConvOperation& operation,
                      const LocalTensors& tensors, const Settings& settings);

// Returns `call`, with its tensors in a shared region if the settings name one.
// Errors: as PlaceInRegion.
absl::StatusOr<PlacedCall> Place(OperationCall call, const Settings& settings);

// Returns a result's values in logical order.
std::vector<double> ValuesOf(const OperationResult& result);

// Runs `call` in one message or as a stream, as the settings say.
absl::StatusOr<OperationReply> Send(const OperationCall& call,
                                    const Settings& settings, Client* client);

}  // namespace convgrad
