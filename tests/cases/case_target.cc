#include "tests/cases/case_target.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"

namespace convgrad::testing_support {

void Outcome::Add(Outcome other) {
  elements += other.elements;
  if (other.verdict <= verdict) return;
  verdict = other.verdict;
  message = std::move(other.message);
}

Outcome Failed(std::string message) {
  return {Verdict::kFailed, std::move(message), 0};
}

Outcome OutcomeOf(const ConvOperation& operation, const absl::Status& error) {
  const std::string what(error.message());
  if (absl::IsUnimplemented(error)) return {Verdict::kRefused, what, 0};
  if (absl::IsResourceExhausted(error)) return {Verdict::kSkipped, what, 0};
  return Failed(absl::StrCat(ToString(operation), "\n  ", error.ToString()));
}

absl::StatusOr<std::vector<AlignedBuffer>> CaseTarget::Run(
    const ConvOperation& operation, const PackOperand& pack) const {
  RETURN_IF_ERROR(Validate(operation));
  PackedOperands packed;
  for (Operand which : kAllOperands) {
    const auto& tensor = operation.operand(which);
    if (!tensor) continue;
    ASSIGN_OR_RETURN(packed[static_cast<size_t>(which)], pack(which, *tensor));
  }
  return Compute(operation, packed);
}

std::optional<Answer> CaseTarget::Ask(const OperationSpec& spec,
                                      const PackOperand& pack,
                                      Outcome* outcome) const {
  ConvOperation operation = MakeOperation(spec);
  absl::StatusOr<std::vector<AlignedBuffer>> results = Run(operation, pack);
  if (!results.ok()) {
    outcome->Add(OutcomeOf(operation, results.status()));
    return std::nullopt;
  }
  return Answer{std::move(operation), *std::move(results)};
}

}  // namespace convgrad::testing_support
