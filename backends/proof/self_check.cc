#include "backends/proof/self_check.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "backends/core/convolution/error_bound.h"
#include "backends/core/status.h"
#include "backends/core/steady_now.h"
#include "backends/kernels/operators/nonfinite.h"
#include "backends/proof/self_check_elements.h"

namespace convgrad {
namespace {

bool IsForward(const ConvOperation& operation) {
  return operation.direction == Direction::kForward;
}

TensorDescriptor OutputDescriptor(const ConvOperation& operation) {
  return {DataType::kF32, Layout::kNCX, OutputDims(operation.problem)};
}

// Returns whether an identity can check the operation.
bool HasIdentity(const ConvOperation& operation) {
  return operation.operand(Operand::kInput) &&
         operation.operand(Operand::kWeight) &&
         operation.operand(Operand::kGradOutput) &&
         (operation.result(Result::kGradInput) != nullptr ||
          operation.result(Result::kGradWeight) != nullptr);
}

// Returns conv(x, w), whose adjoints are the gradients.
ConvOperation ConvolutionOf(const ConvOperation& operation) {
  ConvOperation forward;
  forward.problem = operation.problem;
  forward.problem.bias.reset();
  forward.problem.relu = forward.problem.residual = false;
  for (Operand operand : {Operand::kInput, Operand::kWeight}) {
    forward.operand(operand) = CanonicalOf(*operation.operand(operand));
  }
  forward.results.push_back({Result::kOutput, OutputDescriptor(operation)});
  return forward;
}

void TakeAbsolute(const CanonicalTensor& tensor) {
  for (int64_t i = 0; i < tensor.count(); ++i) {
    tensor.data[i] = std::fabs(tensor.data[i]);
  }
}

bool IsFinite(const CanonicalTensor& tensor) {
  return CountNonfinite(DataType::kF32, tensor.data, tensor.count()) == 0;
}

bool Agree(const SelfCheckReport& report) {
  const auto agrees = [&](const std::optional<double>& side) {
    // NaN differences come from non-finite data only.
    return !side || !(std::fabs(*side - *report.forward) > report.bound);
  };
  return agrees(report.grad_input) && agrees(report.grad_weight);
}

// The arrays of a check, in scratch. Without scratch, only computes their size.
struct Arrays {
  Arrays(const ConvOperation& operation, bool convolves,
         absl::Span<std::byte> scratch) {
    const auto take = [&](int64_t size) {
      constexpr int64_t kAlignment = 64;
      std::byte* data = scratch.empty() ? nullptr : scratch.data() + bytes;
      bytes += (size + kAlignment - 1) / kAlignment * kAlignment;
      return data;
    };
    const auto take_tensor = [&](const TensorDescriptor& tensor) {
      return CanonicalTensor{tensor,
                             reinterpret_cast<float*>(take(*ByteSize(tensor)))};
    };
    const TensorDescriptor output = OutputDescriptor(operation);
    y = take_tensor(output);
    g = take_tensor(output);
    if (convolves) {
      x = take_tensor(CanonicalOf(*operation.operand(Operand::kInput)));
      w = take_tensor(CanonicalOf(*operation.operand(Operand::kWeight)));
      const CanonicalTensor& larger = x.count() > w.count() ? x : w;
      space = take_tensor(IsForward(operation) ? output : larger.descriptor);
    }
    if (const auto& operand = operation.operand(Operand::kBias)) {
      bias = take_tensor(CanonicalOf(*operand));
    }
    if (const ResultRequest* sums = operation.result(Result::kGradBias)) {
      const int64_t count = 2 * ElementCount(sums->descriptor);
      bias_sums = {
          reinterpret_cast<double*>(take(count * int64_t{sizeof(double)})),
          static_cast<size_t>(count)};
    }
    if (!scratch.empty()) rest = scratch.subspan(bytes);
  }

  CanonicalTensor y;  // conv(x, w); before that, other tensors of its shape
  CanonicalTensor g;  // for a forward, conv(|x|, |w|)
  CanonicalTensor x, w;
  CanonicalTensor space;  // a gradient; for a forward, the residual or output
  CanonicalTensor bias;
  absl::Span<double> bias_sums;
  int64_t bytes = 0;
  absl::Span<std::byte> rest;  // the plan's
};

// Runs one check.
class Checking {
 public:
  Checking(const ConvOperation& operation, const Plan* plan,
           const RunBuffers& buffers)
      : operation_(operation),
        plan_(plan),
        buffers_(buffers),
        arrays_(operation, plan != nullptr, buffers.scratch) {}

  absl::StatusOr<SelfCheckReport> Run() {
    if (IsForward(operation_)) {
      RETURN_IF_ERROR(CheckOutput());
    } else {
      LoadGradOutput();
      CheckSums();
      if (plan_ != nullptr) RETURN_IF_ERROR(CheckIdentity());
    }
    report_.passed = Agree(report_) && report_.output_error.value_or(0) <= 1 &&
                     report_.grad_bias_error.value_or(0) <= 1 &&
                     report_.grad_residual_error.value_or(0) <= 1;
    return report_;
  }

 private:
  void Load(Operand which, const CanonicalTensor& to) const {
    LoadCanonical(*operation_.operand(which),
                  buffers_.operands[PositionOf(which)], to);
  }

  absl::Status Convolve(const CanonicalTensor& output) const {
    RunBuffers buffers(kOperandCount);
    buffers.operands[static_cast<size_t>(Operand::kInput)] = arrays_.x.data;
    buffers.operands[static_cast<size_t>(Operand::kWeight)] = arrays_.w.data;
    buffers.results = {output.data};
    buffers.scratch = arrays_.rest;
    return plan_->Run(buffers).status();
  }

  absl::Status ConvolveAbsolutes(const CanonicalTensor& output) const {
    TakeAbsolute(arrays_.x);
    TakeAbsolute(arrays_.w);
    return Convolve(output);
  }

  absl::Status CheckOutput() {
    Load(Operand::kInput, arrays_.x);
    Load(Operand::kWeight, arrays_.w);
    const ExpectedOutput expected{arrays_.y, arrays_.g,
                                  IsFinite(arrays_.x) && IsFinite(arrays_.w)};
    RETURN_IF_ERROR(Convolve(expected.sum));
    RETURN_IF_ERROR(ConvolveAbsolutes(expected.spread));
    if (operation_.problem.bias) {
      Load(Operand::kBias, arrays_.bias);
      expected.AddBias(operation_.problem, arrays_.bias);
    }
    if (operation_.problem.residual) {
      Load(Operand::kResidual, arrays_.space);
      expected.AddResidual(arrays_.space);
    }
    report_.output_error =
        OutputError({&operation_, &operation_.results[0], buffers_.results[0]},
                    expected, arrays_.space);
    return absl::OkStatus();
  }

  // Masks grad_output if a ReLU is fused.
  void LoadGradOutput() const {
    Load(Operand::kGradOutput, arrays_.g);
    if (!operation_.problem.relu) return;
    Load(Operand::kOutput, arrays_.y);
    for (int64_t i = 0; i < arrays_.g.count(); ++i) {
      arrays_.g.data[i] = arrays_.y.data[i] > 0 ? arrays_.g.data[i] : 0.0f;
    }
  }

  void CheckSums() {
    for (size_t i = 0; i < operation_.results.size(); ++i) {
      const ResultRequest& request = operation_.results[i];
      const FoundResult found{&operation_, &request, buffers_.results[i]};
      if (request.which == Result::kGradBias) {
        report_.grad_bias_error =
            GradBiasError(found, arrays_.g, arrays_.bias_sums);
      } else if (request.which == Result::kGradResidual) {
        report_.grad_residual_error =
            GradResidualError(found, arrays_.g, arrays_.y);
      }
    }
  }

  absl::Status CheckIdentity() {
    Load(Operand::kInput, arrays_.x);
    Load(Operand::kWeight, arrays_.w);
    const Rounding rounding = MultiplyGradients();
    RETURN_IF_ERROR(Convolve(arrays_.y));
    report_.forward = Dot(arrays_.g, arrays_.y).sum;
    RETURN_IF_ERROR(ConvolveAbsolutes(arrays_.y));
    report_.bound =
        (1e-6 + rounding.relative) * Dot(arrays_.g, arrays_.y).absolute +
        rounding.absolute;
    return absl::OkStatus();
  }

  // The error of a side of the identity that the rounding of its gradient
  // causes.
  struct Rounding {
    double relative = UnitRoundoff(DataType::kF32);
    double absolute = 0;  // By elements near 0, which become subnormal or 0.
  };

  // Sets the gradients' sides of the identity. Returns the largest rounding of
  // the gradients.
  Rounding MultiplyGradients() {
    Rounding rounding;
    for (size_t i = 0; i < operation_.results.size(); ++i) {
      const ResultRequest& request = operation_.results[i];
      const bool is_input = request.which == Result::kGradInput;
      // A result that was scaled by 0 can't be checked.
      if ((!is_input && request.which != Result::kGradWeight) ||
          request.scale == 0) {
        continue;
      }
      const CanonicalTensor& factor = is_input ? arrays_.x : arrays_.w;
      const CanonicalTensor gradient{factor.descriptor, arrays_.space.data};
      LoadCanonical(request.descriptor, buffers_.results[i], gradient);
      (is_input ? report_.grad_input : report_.grad_weight) =
          Dot(factor, gradient).sum / request.scale;
      rounding.relative =
          std::max(rounding.relative, UnitRoundoff(request.descriptor.dtype));
      // The error that the contract allows an element of 0.
      const double step = ErrorBound(operation_, request).Allowed(0, 0);
      rounding.absolute =
          std::max(rounding.absolute,
                   step * SumOfAbsolutes(factor.data, factor.count()) /
                       std::fabs(request.scale));
    }
    return rounding;
  }

  const ConvOperation& operation_;
  const Plan* const plan_;  // of conv(x, w); null if only sums are checked
  const RunBuffers& buffers_;
  const Arrays arrays_;
  SelfCheckReport report_;
};

absl::Status NothingToCheck() {
  return Unsupported(
      "options.self_check", "an operation with nothing to check",
      "a forward, or a backward that asks for grad_bias or grad_residual, or "
      "that has input, weight and grad_output and asks for grad_input or "
      "grad_weight");
}

}  // namespace

SelfCheck::SelfCheck(ConvOperation operation, std::unique_ptr<Plan> plan)
    : operation_(std::move(operation)), plan_(std::move(plan)) {}

absl::StatusOr<std::unique_ptr<SelfCheck>> SelfCheck::Make(
    const Backend& backend, const Operation& checked,
    const PlanOptions& options) {
  const ConvOperation* convolution = AsConvolution(checked);
  if (convolution == nullptr) return NothingToCheck();
  const ConvOperation& operation = *convolution;
  std::unique_ptr<Plan> plan;
  if (IsForward(operation) || HasIdentity(operation)) {
    ASSIGN_OR_RETURN(plan, backend.MakePlan(ConvolutionOf(operation), options));
  } else if (operation.result(Result::kGradBias) == nullptr &&
             operation.result(Result::kGradResidual) == nullptr) {
    return NothingToCheck();
  }
  return std::unique_ptr<SelfCheck>(new SelfCheck(operation, std::move(plan)));
}

int64_t SelfCheck::scratch_bytes() const {
  return Arrays(operation_, plan_ != nullptr, {}).bytes +
         (plan_ == nullptr ? 0 : plan_->scratch_bytes());
}

absl::StatusOr<SelfCheckReport> SelfCheck::Run(
    const RunBuffers& buffers) const {
  const absl::Time start = SteadyNow();
  ASSIGN_OR_RETURN(SelfCheckReport report,
                   Checking(operation_, plan_.get(), buffers).Run());
  report.elapsed = SteadyNow() - start;
  return report;
}

}  // namespace convgrad
