// `BreakingBackend` is a real backend that computes something wrongly, as a bug
// of a library or of the backend would on some CPU.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/core/logical_tensor.h"
#include "backends/core/program/conv_backend.h"
#include "backends/core/status.h"

namespace convgrad {

enum class Breakage {
  kSwappedTap,       // two taps of the first filter trade places
  kDroppedResidual,  // the residual counts as 0
  kF16AsBF16,        // f16 operands are read as bf16
  kWrongBiasSum,     // one element of grad_bias is off by one
  kShiftedLane,      // each element of an NXC result lies one lane further
  kReferenceSteps,   // nothing is wrong, but a step is on the reference
};

struct Break {
  Breakage what;
  // The dtype of the operands that are affected.
  DataType dtype;
  // False: results computed by way of f32 are correct.
  bool in_f32_too = false;
  // Selects the affected operations, which then have an implementation of their
  // own; null: all operations.
  bool (*where)(const ConvOperation&) = nullptr;
};

// Runs the real plan on altered operands, or alters its results.
class BrokenPlan final : public Plan {
 public:
  BrokenPlan(ConvOperation operation, Break broken, std::unique_ptr<Plan> real)
      : operation_(std::move(operation)),
        broken_(broken),
        real_(std::move(real)),
        implementation_(broken_.where ? "special" : real_->implementation()) {}

  absl::StatusOr<RunTimes> Run(const RunBuffers& buffers) const override {
    RunBuffers spoilt = buffers;
    std::vector<std::vector<std::byte>> bytes(kOperandCount);
    for (Operand which : kAllOperands) {
      const auto& tensor = operation_.operand(which);
      if (!tensor || buffers.operands[PositionOf(which)] == nullptr) continue;
      const auto i = static_cast<size_t>(which);
      bytes[i].resize(*ByteSize(*tensor));
      std::memcpy(bytes[i].data(), buffers.operands[i], bytes[i].size());
      SpoilOperand(which, *tensor, bytes[i].data());
      spoilt.operands[i] = bytes[i].data();
    }
    ASSIGN_OR_RETURN(const RunTimes times, real_->Run(spoilt));
    for (size_t i = 0; i < operation_.results.size(); ++i) {
      SpoilResult(operation_.results[i], buffers.results[i]);
    }
    return times;
  }
  int64_t scratch_bytes() const override { return real_->scratch_bytes(); }
  int64_t resident_bytes() const override { return real_->resident_bytes(); }
  std::vector<std::string> reference_steps() const override {
    if (broken_.what != Breakage::kReferenceSteps) return {};
    return {"step by ref:any", "another"};
  }
  absl::string_view implementation() const override { return implementation_; }

 private:
  void SpoilOperand(Operand which, const TensorDescriptor& tensor,
                    std::byte* data) const {
    const bool is_residual = which == Operand::kResidual;
    if (broken_.what == Breakage::kDroppedResidual && is_residual) {
      std::fill_n(data, *ByteSize(tensor), std::byte{0});
    }
    TensorDescriptor read_as = tensor;
    if (broken_.what == Breakage::kF16AsBF16) read_as.dtype = DataType::kBF16;
    std::vector<double> values = LoadLogical(read_as, data);
    if (broken_.what == Breakage::kSwappedTap && which == Operand::kWeight) {
      std::swap(values[0], values[1]);
    }
    StoreLogical(tensor, values, data);
  }

  void SpoilResult(const ResultRequest& request, void* data) const {
    std::vector<double> values = LoadLogical(request.descriptor, data);
    if (broken_.what == Breakage::kWrongBiasSum &&
        request.which == Result::kGradBias) {
      values[0] += 1;
      StoreLogical(request.descriptor, values, data);
    }
    if (broken_.what == Breakage::kShiftedLane &&
        request.descriptor.layout == Layout::kNXC) {
      auto* bytes = static_cast<std::byte*>(data);
      std::rotate(bytes, bytes + ByteSizeOf(request.descriptor.dtype),
                  bytes + *ByteSize(request.descriptor));
    }
  }

  const ConvOperation operation_;
  const Break broken_;
  const std::unique_ptr<Plan> real_;
  const std::string implementation_;
};

// `BreakingBackend` is thread-safe.
class BreakingBackend final : public ConvBackend {
 public:
  BreakingBackend(std::unique_ptr<Backend> real, std::vector<Break> breaks)
      : real_(std::move(real)), breaks_(std::move(breaks)) {}

  absl::string_view name() const override { return real_->name(); }
  BackendCapabilities capabilities() const override {
    return real_->capabilities();
  }
  absl::Status CheckConvolution(const ConvOperation& operation) const override {
    return real_->CheckSupport(operation);
  }
  absl::StatusOr<std::unique_ptr<Plan>> PlanConvolution(
      const ConvOperation& operation,
      const PlanOptions& options) const override {
    ASSIGN_OR_RETURN(std::unique_ptr<Plan> plan,
                     real_->MakePlan(operation, options));
    for (const Break& broken : breaks_) {
      if (operation.dtype() != broken.dtype ||
          (options.compute_in_f32 && !broken.in_f32_too) ||
          (broken.where && !broken.where(operation))) {
        continue;
      }
      plan = std::make_unique<BrokenPlan>(operation, broken, std::move(plan));
    }
    return plan;
  }

 private:
  const std::unique_ptr<Backend> real_;
  const std::vector<Break> breaks_;
};

}  // namespace convgrad
