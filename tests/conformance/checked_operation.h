// `CheckedOperation` is an operation with its results and their self-check.
#pragma once

#include <cstdlib>
#include <utility>
#include <vector>

#include "backends/core/logical_tensor.h"
#include "backends/proof/self_check.h"
#include "backends/registry.h"
#include "gtest/gtest.h"
#include "tests/conformance/operation_spec.h"
#include "tests/conformance/tensor_fill.h"

namespace convgrad::testing_support {

inline const Backend& Reference() {
  static const auto& backends = *new auto(MakeBackends());
  for (const RegisteredBackend& entry : backends) {
    if (entry.name == "reference") return **entry.backend;
  }
  std::abort();
}

// An operation with random operands and the results of a backend.
class CheckedOperation {
 public:
  explicit CheckedOperation(ConvOperation operation,
                            const Backend& backend = Reference())
      : operation(std::move(operation)), backend_(backend) {
    for (Operand operand : kAllOperands) {
      const auto& tensor = this->operation.operand(operand);
      operands_.emplace_back(tensor ? *ByteSize(*tensor) : 0);
      if (!tensor) continue;
      Set(operand,
          RealFill(ElementCount(*tensor), static_cast<uint64_t>(operand) + 1,
                   this->operation.dtype()));
    }
    for (const ResultRequest& request : this->operation.results) {
      results_.emplace_back(*ByteSize(request.descriptor));
    }
    Compute(this->operation);
  }

  explicit CheckedOperation(const OperationSpec& spec)
      : CheckedOperation(MakeOperation(spec)) {}

  std::vector<double> Get(Operand which) const {
    return LoadLogical(*operation.operand(which),
                       operands_[static_cast<size_t>(which)].data());
  }
  void Set(Operand which, const std::vector<double>& values) {
    StoreLogical(*operation.operand(which), values,
                 operands_[static_cast<size_t>(which)].data());
  }
  std::vector<double> Get(size_t result) const {
    return LoadLogical(operation.results[result].descriptor,
                       results_[result].data());
  }
  void Set(size_t result, const std::vector<double>& values) {
    StoreLogical(operation.results[result].descriptor, values,
                 results_[result].data());
  }

  // Replaces the results by those of `other`, which has the same results.
  void Compute(const ConvOperation& other) {
    auto plan = backend_.MakePlan(other, {});
    ASSERT_TRUE(plan.ok()) << plan.status();
    GuardedBuffer scratch((*plan)->scratch_bytes());
    EXPECT_TRUE((*plan)->Run(Buffers(&scratch)).ok());
  }

  // Replaces the results by those of other operands.
  void ComputeWith(Operand which, const std::vector<double>& values) {
    const std::vector<double> right = Get(which);
    Set(which, values);
    Compute(operation);
    Set(which, right);
  }

  SelfCheckReport Check() {
    const auto check = SelfCheck::Make(backend_, operation, {});
    EXPECT_TRUE(check.ok()) << check.status();
    GuardedBuffer scratch((*check)->scratch_bytes());
    const auto report = (*check)->Run(Buffers(&scratch));
    EXPECT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(scratch.GuardsIntact());
    return *report;
  }

  ConvOperation operation;

 private:
  RunBuffers Buffers(GuardedBuffer* scratch) {
    RunBuffers buffers(kOperandCount);
    for (Operand which : kAllOperands) {
      const auto i = static_cast<size_t>(which);
      if (operation.operands[i]) buffers.operands[i] = operands_[i].data();
    }
    for (GuardedBuffer& result : results_) {
      buffers.results.push_back(result.data());
    }
    buffers.scratch = absl::MakeSpan(scratch->data(), scratch->size());
    return buffers;
  }

  const Backend& backend_;
  std::vector<GuardedBuffer> operands_;  // by Operand
  std::vector<GuardedBuffer> results_;
};

}  // namespace convgrad::testing_support
