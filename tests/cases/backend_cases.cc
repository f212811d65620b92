#include "tests/cases/backend_cases.h"

#include <cstring>
#include <iostream>
#include <utility>

#include "absl/flags/parse.h"
#include "backends/core/status.h"
#include "tests/cases/case_folder.h"

namespace convgrad::testing_support {
namespace {

constexpr int kSkipped = 77;

class BackendTarget final : public CaseTarget {
 public:
  explicit BackendTarget(std::unique_ptr<Backend> backend)
      : backend_(std::move(backend)) {}

 private:
  // Allocates memory in which all numbers are NaN, for results and scratch.
  static absl::StatusOr<AlignedBuffer> Allocate(int64_t bytes) {
    ASSIGN_OR_RETURN(AlignedBuffer buffer, AlignedBuffer::Allocate(bytes));
    if (bytes > 0) std::memset(buffer.data(), 0xff, bytes);
    return buffer;
  }

  absl::StatusOr<std::vector<AlignedBuffer>> Compute(
      const ConvOperation& operation,
      const PackedOperands& operands) const override {
    RETURN_IF_ERROR(backend_->CheckSupport(operation));
    ASSIGN_OR_RETURN(const auto plan, backend_->MakePlan(operation, {}));
    RunBuffers buffers(kOperandCount);
    for (size_t i = 0; i < kOperandCount; ++i) {
      buffers.operands[i] = operands[i].data();
    }
    std::vector<AlignedBuffer> results;
    for (const ResultRequest& request : operation.results) {
      ASSIGN_OR_RETURN(AlignedBuffer result,
                       Allocate(*ByteSize(request.descriptor)));
      buffers.results.push_back(result.data());
      results.push_back(std::move(result));
    }
    ASSIGN_OR_RETURN(const AlignedBuffer scratch,
                     Allocate(plan->scratch_bytes()));
    buffers.scratch = absl::MakeSpan(scratch.data(), scratch.size());
    RETURN_IF_ERROR(plan->Run(buffers).status());
    return results;
  }

  const std::unique_ptr<Backend> backend_;
};

}  // namespace

int RunBackendCases(BackendFactory make_backend, int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  absl::StatusOr<std::unique_ptr<Backend>> backend = make_backend();
  if (absl::IsFailedPrecondition(backend.status())) {
    std::cout << "skipped: " << backend.status().message() << std::endl;
    return kSkipped;
  }
  return RunCaseFolder([&]() -> absl::StatusOr<std::unique_ptr<CaseTarget>> {
    RETURN_IF_ERROR(backend.status());
    return std::make_unique<BackendTarget>(*std::move(backend));
  });
}

}  // namespace convgrad::testing_support
