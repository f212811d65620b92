#include "backends/onednn/networks/steps/convolutions/network_folded_norm.h"

#include <algorithm>
#include <utility>

#include "backends/kernels/operators/batch_norm.h"
#include "backends/onednn/networks/schedule/network_guard.h"

namespace convgrad::onednn {

FoldedNorm AddFoldedNorm(const ProgramStep& norm, const std::string& bias_name,
                         NetworkBuilder* builder) {
  const int64_t channels = builder->shapes().dims.at(norm.operands[0])[1];
  const FoldedNorm folded = {builder->AddArray<float>(channels),
                             builder->AddArray<float>(channels)};
  const BufferId is_unsafe = builder->AddArray<int32_t>(1);
  const BufferId means = builder->AddArray<double>(channels);
  const BufferId variances = builder->AddArray<double>(channels);
  builder->RepeatIf(is_unsafe);
  const BufferId bias = builder->Parameter(bias_name);
  const BufferId gamma = builder->Parameter(OperandAt(norm, 1));
  const BufferId beta = builder->Parameter(OperandAt(norm, 2));
  const BufferId mean = builder->Parameter(OperandAt(norm, 3));
  const BufferId variance = builder->Parameter(OperandAt(norm, 4));
  Step step = {
      .kind = "batch_norm forward",
      .reads = {mean, variance, bias, gamma, beta},
      .writes = {is_unsafe, folded.scale, folded.shift, means, variances}};
  step.function =
      [=, epsilon = FloatAttribute(norm, "eps")](const RunContext& context) {
        const auto widened = [&](BufferId from, BufferId to) {
          const auto* values = context.Read<float>(from);
          auto* doubles = context.Write<double>(to);
          std::copy_n(values, channels, doubles);
          return doubles;
        };
        auto* scale = context.Write<float>(folded.scale);
        auto* shift = context.Write<float>(folded.shift);
        FoldNorm({.blocks = {1, channels, 1, channels, DataType::kF32},
                  .gamma = context.Read<float>(gamma),
                  .beta = context.Read<float>(beta),
                  .epsilon = epsilon,
                  .mean = widened(mean, means),
                  .variance = widened(variance, variances),
                  .training = false,
                  .scratch = nullptr},
                 context.Read<float>(bias), scale, shift);
        const auto count = static_cast<size_t>(channels);
        *context.Write<int32_t>(is_unsafe) =
            AreSafeFactors({scale, count}, {shift, count}) ? 0 : 1;
      };
  builder->Add(std::move(step));
  return folded;
}

}  // namespace convgrad::onednn
