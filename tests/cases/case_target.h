// What cases are asked of: a server, or a backend of this process.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/aligned_buffer.h"
#include "tests/conformance/operation_spec.h"

namespace convgrad::testing_support {

// What became of one run: a record in one dtype, one set of layouts and one
// kind of data.
enum class Verdict { kPassed, kSkipped, kRefused, kFailed };

struct Outcome {
  Verdict verdict = Verdict::kPassed;
  std::string message;   // why, if it isn't kPassed
  int64_t elements = 0;  // compared

  // Counts `other` in; the worse verdict stays.
  void Add(Outcome other);
};

Outcome Failed(std::string message);

// Returns how an error counts: UNIMPLEMENTED is a refusal, and a target that
// hasn't the memory skips; all else is a failure.
Outcome OutcomeOf(const ConvOperation& operation, const absl::Status& error);

// Returns the tensor's bytes for one operand of an operation.
using PackOperand = std::function<absl::StatusOr<AlignedBuffer>(
    Operand, const TensorDescriptor&)>;

// By Operand; empty where the operation has none.
using PackedOperands = std::array<AlignedBuffer, kOperandCount>;

// An operation and what the target made of it, in the order of its results.
struct Answer {
  ConvOperation operation;
  std::vector<AlignedBuffer> results;
};

// Thread-safe.
class CaseTarget {
 public:
  virtual ~CaseTarget() = default;

  // Runs one operation; its results are in their order.
  absl::StatusOr<std::vector<AlignedBuffer>> Run(const ConvOperation& operation,
                                                 const PackOperand& pack) const;

  // Asks for the results of `spec`. An error goes to `outcome`.
  std::optional<Answer> Ask(const OperationSpec& spec, const PackOperand& pack,
                            Outcome* outcome) const;

 private:
  // Requires: Validate(operation).ok().
  virtual absl::StatusOr<std::vector<AlignedBuffer>> Compute(
      const ConvOperation& operation, const PackedOperands& operands) const = 0;
};

}  // namespace convgrad::testing_support
