// `CaseTarget` computes the operations of cases: a server, or a backend of this
// process.
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

// The verdict of one run: a record in one dtype, one set of layouts and one
// kind of data.
enum class Verdict { kPassed, kSkipped, kRefused, kFailed };

struct Outcome {
  Verdict verdict = Verdict::kPassed;
  std::string message;   // why, if it isn't kPassed
  int64_t elements = 0;  // compared

  // Adds `other`; the worse verdict remains.
  void Add(Outcome other);
};

Outcome Failed(std::string message);

// Returns the outcome of an error: UNIMPLEMENTED is a refusal, a target without
// enough memory skips, and every other error is a failure.
Outcome OutcomeOf(const ConvOperation& operation, const absl::Status& error);

// Returns the tensor's bytes for one operand of an operation.
using PackOperand = std::function<absl::StatusOr<AlignedBuffer>(
    Operand, const TensorDescriptor&)>;

// By Operand; empty if the operation has no such operand.
using PackedOperands = std::array<AlignedBuffer, kOperandCount>;

// An operation and the target's results, in the order of its results.
struct Answer {
  ConvOperation operation;
  std::vector<AlignedBuffer> results;
};

// `CaseTarget` is thread-safe.
class CaseTarget {
 public:
  virtual ~CaseTarget() = default;

  // Runs one operation and returns its results in order.
  absl::StatusOr<std::vector<AlignedBuffer>> Run(const ConvOperation& operation,
                                                 const PackOperand& pack) const;

  // Runs the operation of `spec`. An error is added to `outcome`.
  std::optional<Answer> Ask(const OperationSpec& spec, const PackOperand& pack,
                            Outcome* outcome) const;

 private:
  // Requires: Validate(operation).ok().
  virtual absl::StatusOr<std::vector<AlignedBuffer>> Compute(
      const ConvOperation& operation, const PackedOperands& operands) const = 0;
};

}  // namespace convgrad::testing_support
