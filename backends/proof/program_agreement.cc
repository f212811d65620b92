#include "backends/proof/program_agreement.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "backends/core/logical_tensor.h"
#include "backends/core/status.h"
#include "backends/proof/proof_data.h"

namespace convgrad {
namespace {

// Returns the names of operands, by position.
std::vector<std::string> NamesOf(const ProgramOperation& operation) {
  std::vector<std::string> names;
  for (const auto& input : operation.program().inputs) {
    names.push_back(input.name);
  }
  for (const auto& parameter : operation.program().parameters) {
    names.push_back(parameter.name);
  }
  if (operation.has_randomness()) names.push_back("randomness");
  return names;
}

// Returns quarters of -4 to 4; variances above 0, classes, and counts.
std::vector<double> ValuesOf(const std::string& name,
                             const TensorDescriptor& tensor, uint64_t seed) {
  std::vector<double> values(static_cast<size_t>(ElementCount(tensor)));
  for (size_t i = 0; i < values.size(); ++i) {
    const double integer = IntegerAt(seed, i);
    values[i] = tensor.dtype == DataType::kI64 || name == "var"
                    ? std::fabs(integer) + 1
                    : integer / 4;
  }
  return values;
}

bool AreClose(const TensorDescriptor& tensor, const NanBuffer& got,
              const NanBuffer& wanted, double tolerance) {
  const std::vector<double> a = LoadLogical(tensor, got.data());
  const std::vector<double> b = LoadLogical(tensor, wanted.data());
  double most = 1e-3;
  for (double value : b) most = std::max(most, std::fabs(value));
  for (size_t i = 0; i < a.size(); ++i) {
    if (!(std::fabs(a[i] - b[i]) <= tolerance * most)) return false;
  }
  return true;
}

std::vector<NanBuffer> ResultsOf(const ProgramOperation& operation,
                                 RunBuffers* buffers) {
  std::vector<NanBuffer> results;
  buffers->results.clear();
  for (const TensorUse& use : operation.ResultUses()) {
    results.emplace_back(*ByteSize(*use.tensor));
    buffers->results.push_back(results.back().data());
  }
  return results;
}

}  // namespace

absl::StatusOr<bool> AgreesWithReference(const ProgramOperation& operation,
                                         const Plan& plan,
                                         const Backend& reference) {
  const TensorUses uses = operation.OperandUses();
  const std::vector<std::string> names = NamesOf(operation);
  std::vector<NanBuffer> operands;
  RunBuffers buffers(uses.size());
  for (size_t i = 0; i < uses.size(); ++i) {
    const TensorDescriptor& tensor = *uses[i].tensor;
    operands.emplace_back(*ByteSize(tensor));
    StoreLogical(tensor, ValuesOf(names[i], tensor, i), operands[i].data());
    buffers.operands[i] = operands[i].data();
  }
  const std::vector<NanBuffer> wanted = ResultsOf(operation, &buffers);
  ASSIGN_OR_RETURN(const auto exact, reference.MakePlan(operation, {}));
  const NanBuffer exact_scratch(exact->scratch_bytes());
  buffers.scratch = exact_scratch.span();
  RETURN_IF_ERROR(exact->Run(buffers).status());
  const std::vector<NanBuffer> got = ResultsOf(operation, &buffers);
  const NanBuffer scratch(plan.scratch_bytes());
  buffers.scratch = scratch.span();
  if (!plan.Run(buffers).ok()) return false;
  const double tolerance =
      operation.dtype() == DataType::kF32 ? 1e-4 : 1.0 / 16;
  const TensorUses results = operation.ResultUses();
  for (size_t i = 0; i < results.size(); ++i) {
    if (!AreClose(*results[i].tensor, got[i], wanted[i], tolerance)) {
      return false;
    }
  }
  return true;
}

}  // namespace convgrad
