#include "server/scheduling/inspection.h"

#include <utility>

#include "backends/core/status.h"
#include "backends/kernels/operators/nonfinite.h"

namespace convgrad {
namespace {

absl::StatusOr<SelfCheckReport> CheckItself(const Backend& backend,
                                            const Operation& operation,
                                            const PlanOptions& options,
                                            RunBuffers buffers,
                                            CallMemory* memory) {
  ASSIGN_OR_RETURN(const auto check,
                   SelfCheck::Make(backend, operation, options));
  const int64_t bytes = check->scratch_bytes();
  ASSIGN_OR_RETURN(Reservation reservation,
                   memory->budget.TryReserve(BufferPool::CapacityFor(bytes)));
  ASSIGN_OR_RETURN(Buffer scratch, memory->pool.Take(bytes));
  buffers.scratch = absl::MakeSpan(scratch.data(), scratch.size());
  return check->Run(buffers);
}

}  // namespace

absl::StatusOr<Findings> Inspect(const InspectionRequest& request,
                                 const Backend& backend,
                                 const Operation& operation,
                                 const PlanOptions& options,
                                 const RunBuffers& buffers,
                                 CallMemory* memory) {
  Findings findings;
  if (request.self_check != SelfCheckMode::kOff) {
    auto report = CheckItself(backend, operation, options, buffers, memory);
    if (report.ok()) {
      findings.self_check = *std::move(report);
    } else if (request.self_check == SelfCheckMode::kRequired) {
      return report.status();
    }
  }
  if (!request.count_nonfinite) return findings;
  const TensorUses results = operation.ResultUses();
  for (size_t i = 0; i < results.size(); ++i) {
    const TensorDescriptor& tensor = *results[i].tensor;
    findings.nonfinite_counts.push_back(
        CountNonfinite(tensor.dtype, buffers.results[i],
                       *ByteSize(tensor) / ByteSizeOf(tensor.dtype)));
  }
  return findings;
}

}  // namespace convgrad
