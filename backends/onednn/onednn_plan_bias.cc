// PlanBuilder's bias: added by the library or an epilogue, its gradient summed
// by the library or a reduction of ours.
#include <algorithm>
#include <memory>

#include "backends/kernels/element_convert.h"
#include "backends/onednn/onednn_cost_model.h"
#include "backends/onednn/onednn_plan_builder.h"
#include "backends/onednn/onednn_reduction.h"
#include "backends/onednn/onednn_types.h"

namespace convgrad::onednn {
namespace {

// Whether a bias of `dims` is one number per channel of the output.
bool IsPerChannel(const ConvProblem& problem, const Dims& dims) {
  const Dims broadcast = BroadcastBiasDims(problem, dims);
  for (size_t i = 0; i < broadcast.size(); ++i) {
    if (broadcast[i] != (i == 1 ? problem.out_channels : 1)) return false;
  }
  return true;
}

bool IsOneNumber(const Dims& dims) {
  return std::count(dims.begin(), dims.end(), 1) == std::ssize(dims);
}

}  // namespace

bool PlanBuilder::FusesBias() const {
  const ConvProblem& problem = operation_.problem;
  return problem.bias && !lowering_.mirrored() && !problem.residual &&
         operation_.results[0].scale == 1 &&
         (IsOneNumber(*problem.bias) || IsPerChannel(problem, *problem.bias));
}

bool PlanBuilder::FusesGradBias() const {
  const ResultRequest* bias = operation_.result(Result::kGradBias);
  return bias != nullptr && bias->scale == 1 && !lowering_.mirrored() &&
         operation_.result(Result::kGradWeight) != nullptr &&
         IsPerChannel(operation_.problem, bias->descriptor.dims);
}

Location PlanBuilder::AddBias(bool per_channel) {
  const Tensor bias = OperandTensor(Operand::kBias);
  const int64_t count = ElementCount(bias.descriptor);
  const int64_t channels = operation_.problem.out_channels;
  const int64_t size = per_channel ? channels : count;
  const Location location =
      program_.Allocate(size * static_cast<int64_t>(sizeof(float)));
  program_.AddHostStep({bias.location}, [=](const Memory& memory) {
    auto* values = static_cast<float*>(memory.Write(location));
    ConvertRun(bias.descriptor.dtype, memory.Read(bias.location),
               DataType::kF32, values, count);
    if (size > count) std::fill_n(values + 1, size - 1, values[0]);
  });
  return location;
}

absl::Status PlanBuilder::FuseGradBias(const PassSpec& spec, Candidate* chosen,
                                       PassTensors* tensors) {
  const ResultRequest* bias = operation_.result(Result::kGradBias);
  const DataType dtype = bias->descriptor.dtype;
  // What the library can't store is summed beside it.
  const bool can_store = dtype == DataType::kF32 || dtype == spec.operand_dtype;
  if (!can_store || SumsBiasSlowly(spec, *chosen)) return absl::OkStatus();
  PassSpec with_bias = spec;
  with_bias.bias = dtype;
  ASSIGN_OR_RETURN(std::optional<Candidate> summing,
                   MakeCandidate(with_bias, chosen->format));
  if (!summing) return absl::OkStatus();
  *chosen = *std::move(summing);
  tensors->bias_dtype = dtype;
  tensors->bias = ResultTensor(bias - operation_.results.data()).location;
  sums_bias_in_pass_ = true;
  return absl::OkStatus();
}

void PlanBuilder::AddGradBias() {
  const ResultRequest* request = operation_.result(Result::kGradBias);
  if (request == nullptr || sums_bias_in_pass_) return;
  const Tensor gradient = RowMajorOf(gradient_);
  const auto reduction = std::make_shared<const BiasReduction>(
      gradient.descriptor,
      BroadcastBiasDims(operation_.problem, request->descriptor.dims),
      threads_);
  const Location scratch = program_.Allocate(reduction->scratch_bytes());
  const Location result =
      ResultTensor(request - operation_.results.data()).location;
  program_.AddHostStep(
      {gradient.location},
      [=, scale = request->scale, dtype = request->descriptor.dtype,
       from = gradient.location](const Memory& memory) {
        reduction->Run(memory.Read(from), scale, dtype, memory.Write(result),
                       memory.Write(scratch));
      });
}

}  // namespace convgrad::onednn
