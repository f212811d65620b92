#include "backends/core/self_check.h"

#include <algorithm>
#include <cmath>

#include "absl/time/clock.h"
#include "backends/core/reorder.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

// Canonical f32: NCX or OIX.
TensorDescriptor Canonical(const TensorDescriptor& tensor) {
  return {DataType::kF32,
          IsWeightLayout(tensor.layout) ? Layout::kOIX : Layout::kNCX,
          tensor.dims};
}

// The forward whose adjoints the gradients are.
ConvOperation ForwardOf(const ConvOperation& operation) {
  ConvOperation forward;
  forward.problem = operation.problem;
  forward.problem.bias.reset();
  forward.problem.relu = forward.problem.residual = false;
  for (Operand operand : {Operand::kInput, Operand::kWeight}) {
    forward.operand(operand) = Canonical(*operation.operand(operand));
  }
  forward.results.push_back(
      {Result::kOutput, Canonical(*operation.operand(Operand::kGradOutput))});
  return forward;
}

int64_t AlignedBytes(const TensorDescriptor& tensor) {
  constexpr int64_t kAlignment = 64;
  return (*ByteSize(tensor) + kAlignment - 1) / kAlignment * kAlignment;
}

// A tensor in canonical f32.
struct Array {
  TensorDescriptor descriptor;
  float* data;

  int64_t count() const { return ElementCount(descriptor); }
};

struct Products {
  double sum = 0;
  double absolute = 0;
};

Products Dot(const Array& a, const Array& b) {
  Products products;
  for (int64_t i = 0; i < a.count(); ++i) {
    const double product = static_cast<double>(a.data[i]) * b.data[i];
    products.sum += product;
    products.absolute += std::fabs(product);
  }
  return products;
}

void TakeAbsolute(const Array& array) {
  for (int64_t i = 0; i < array.count(); ++i) {
    array.data[i] = std::fabs(array.data[i]);
  }
}

// Everything that a check holds in scratch.
struct Arrays {
  Arrays(const ConvOperation& forward, absl::Span<std::byte> scratch) {
    int64_t used = 0;
    const auto take = [&](const TensorDescriptor& tensor) {
      auto* data = reinterpret_cast<float*>(scratch.data() + used);
      used += AlignedBytes(tensor);
      return Array{tensor, data};
    };
    x = take(*forward.operand(Operand::kInput));
    grad_input = take(x.descriptor);
    w = take(*forward.operand(Operand::kWeight));
    grad_weight = take(w.descriptor);
    g = take(forward.results[0].descriptor);
    y = take(g.descriptor);
    rest = scratch.subspan(used);
  }

  // Reads the operands, and masks g where a ReLU is fused.
  void Load(const ConvOperation& operation, const RunBuffers& buffers) const {
    const auto load = [&](Operand operand, const Array& to) {
      Reorder::Make(*operation.operand(operand), to.descriptor)
          .Run(buffers.operand(operand), to.data);
    };
    load(Operand::kInput, x);
    load(Operand::kWeight, w);
    load(Operand::kGradOutput, g);
    if (!operation.problem.relu) return;
    load(Operand::kOutput, y);
    for (int64_t i = 0; i < g.count(); ++i) {
      g.data[i] = y.data[i] > 0 ? g.data[i] : 0.0f;
    }
  }

  // Sets the sides of the identity that the gradients give. Returns the largest
  // unit roundoff of the gradients.
  double MultiplyGradients(const ConvOperation& operation,
                           const RunBuffers& buffers,
                           SelfCheckReport* report) const {
    double roundoff = UnitRoundoff(DataType::kF32);
    for (size_t i = 0; i < operation.results.size(); ++i) {
      const ResultRequest& request = operation.results[i];
      const bool is_input = request.which == Result::kGradInput;
      // A result scaled by 0 has nothing left to check.
      if ((!is_input && request.which != Result::kGradWeight) ||
          request.scale == 0) {
        continue;
      }
      const Array& gradient = is_input ? grad_input : grad_weight;
      Reorder::Make(request.descriptor, gradient.descriptor)
          .Run(buffers.results[i], gradient.data);
      const Products products = Dot(is_input ? x : w, gradient);
      (is_input ? report->grad_input : report->grad_weight) =
          products.sum / request.scale;
      roundoff = std::max(roundoff, UnitRoundoff(request.descriptor.dtype));
    }
    return roundoff;
  }

  Array x, w, g, y, grad_input, grad_weight;
  absl::Span<std::byte> rest;
};

}  // namespace

SelfCheck::SelfCheck(ConvOperation operation, ConvOperation forward,
                     std::unique_ptr<Plan> plan)
    : operation_(std::move(operation)),
      forward_(std::move(forward)),
      plan_(std::move(plan)) {}

absl::StatusOr<std::unique_ptr<SelfCheck>> SelfCheck::Make(
    const Backend& backend, const ConvOperation& operation,
    const PlanOptions& options) {
  const bool has_operands = operation.operand(Operand::kInput) &&
                            operation.operand(Operand::kWeight) &&
                            operation.operand(Operand::kGradOutput);
  const bool has_result = operation.result(Result::kGradInput) != nullptr ||
                          operation.result(Result::kGradWeight) != nullptr;
  if (operation.direction == Direction::kForward || !has_operands ||
      !has_result) {
    return MakeError(absl::StatusCode::kUnimplemented,
                     {Reason::kUnsupported, "options.self_check",
                      "an operation with nothing to check",
                      "a backward with input, weight and grad_output that asks "
                      "for grad_input or grad_weight"});
  }
  ConvOperation forward = ForwardOf(operation);
  ASSIGN_OR_RETURN(auto plan, backend.MakePlan(forward, options));
  return std::unique_ptr<SelfCheck>(
      new SelfCheck(operation, std::move(forward), std::move(plan)));
}

int64_t SelfCheck::scratch_bytes() const {
  const TensorDescriptor& x = *forward_.operand(Operand::kInput);
  const TensorDescriptor& w = *forward_.operand(Operand::kWeight);
  const TensorDescriptor& y = forward_.results[0].descriptor;
  // x, w and their gradients; g and the output, which is also where the mask is
  // taken from.
  return 2 * (AlignedBytes(x) + AlignedBytes(w) + AlignedBytes(y)) +
         plan_->scratch_bytes();
}

absl::StatusOr<SelfCheckReport> SelfCheck::Run(
    const RunBuffers& buffers) const {
  const absl::Time start = absl::Now();
  Arrays arrays(forward_, buffers.scratch);
  arrays.Load(operation_, buffers);
  SelfCheckReport report;
  const double roundoff =
      arrays.MultiplyGradients(operation_, buffers, &report);

  RunBuffers forward;
  forward.operands[static_cast<size_t>(Operand::kInput)] = arrays.x.data;
  forward.operands[static_cast<size_t>(Operand::kWeight)] = arrays.w.data;
  forward.results = {arrays.y.data};
  forward.scratch = arrays.rest;
  RETURN_IF_ERROR(plan_->Run(forward).status());
  report.forward = Dot(arrays.g, arrays.y).sum;
  TakeAbsolute(arrays.x);
  TakeAbsolute(arrays.w);
  RETURN_IF_ERROR(plan_->Run(forward).status());
  report.bound = (1e-6 + roundoff) * Dot(arrays.g, arrays.y).absolute;

  const auto agrees = [&](const std::optional<double>& side) {
    // NaN differences come from non-finite data only.
    return !side || !(std::fabs(*side - report.forward) > report.bound);
  };
  report.passed = agrees(report.grad_input) && agrees(report.grad_weight);
  report.elapsed = absl::Now() - start;
  return report;
}

}  // namespace convgrad
