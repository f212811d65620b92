// `IdentityOperation` is an operation that isn't a convolution: its one result
// has the bytes of its one operand. `IdentityBackend` computes it.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "backends/core/backend.h"
#include "backends/core/status.h"

namespace convgrad {

class IdentityOperation final : public Operation {
 public:
  explicit IdentityOperation(TensorDescriptor tensor)
      : tensor_(std::move(tensor)) {}

  const TensorDescriptor& tensor() const { return tensor_; }

  absl::string_view name() const override { return "identity"; }
  std::string text() const override {
    return absl::StrCat("identity ", NameOf(tensor_.dtype), ":",
                        NameOf(tensor_.layout), "/", tensor_.c0, " ",
                        absl::StrJoin(tensor_.dims, "x"));
  }
  DataType dtype() const override { return tensor_.dtype; }
  int64_t flops() const override { return 0; }
  TensorUses OperandUses() const override { return {{&tensor_, HasBatch()}}; }
  TensorUses ResultUses() const override { return {{&tensor_, HasBatch()}}; }
  int64_t batch() const override { return HasBatch() ? tensor_.dims[0] : 1; }
  std::unique_ptr<const Operation> WithBatch(int64_t items) const override {
    TensorDescriptor part = tensor_;
    if (HasBatch()) part.dims[0] = items;
    return std::make_unique<IdentityOperation>(std::move(part));
  }

 private:
  bool HasBatch() const {
    return tensor_.layout == Layout::kNCX || tensor_.layout == Layout::kNXC ||
           tensor_.layout == Layout::kNDC1HWC0;
  }

  const TensorDescriptor tensor_;
};

class IdentityBackend final : public Backend {
 public:
  // `macs_per_second` is as in Backend::nominal_macs_per_second.
  explicit IdentityBackend(double macs_per_second)
      : macs_per_second_(macs_per_second) {}

  absl::string_view name() const override { return "copier"; }
  BackendCapabilities capabilities() const override { return {}; }
  double nominal_macs_per_second(int /*threads*/) const override {
    return macs_per_second_;
  }
  absl::Status CheckSupport(const Operation& operation) const override {
    if (dynamic_cast<const IdentityOperation*>(&operation) != nullptr) {
      return absl::OkStatus();
    }
    return MakeError(absl::StatusCode::kUnimplemented,
                     {Reason::kUnsupported, "operation",
                      std::string(operation.name()), "identity"});
  }
  absl::StatusOr<std::unique_ptr<Plan>> MakePlan(
      const Operation& operation, const PlanOptions&) const override {
    RETURN_IF_ERROR(CheckSupport(operation));
    return std::make_unique<CopyPlan>(
        *ByteSize(*operation.OperandUses()[0].tensor));
  }

 private:
  class CopyPlan final : public Plan {
   public:
    explicit CopyPlan(int64_t size) : size_(size) {}

    absl::StatusOr<RunTimes> Run(const RunBuffers& buffers) const override {
      std::memcpy(buffers.results[0], buffers.operands[0], size_);
      RunTimes times;
      times.compute = absl::Microseconds(1);
      return times;
    }
    int64_t scratch_bytes() const override { return 64; }
    int64_t resident_bytes() const override { return 1; }
    absl::string_view implementation() const override { return "memcpy"; }

   private:
    const int64_t size_;
  };

  const double macs_per_second_;
};

}  // namespace convgrad
