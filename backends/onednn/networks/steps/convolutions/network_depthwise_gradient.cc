#include "backends/onednn/networks/steps/convolutions/network_depthwise_gradient.h"

#include "backends/kernels/convolutions/depthwise_gradient.h"

namespace convgrad::onednn {
void AddDepthwiseGradient(const FastPass& pass, absl::string_view kind,
                          Schedule* schedule) {
  const ConvProblem& problem = pass.problem;
  const DepthwiseShape shape = {
      .batch = problem.batch,
      .channels = problem.in_channels,
      .block = pass.x.blocks.block,
      .y = problem.axes.size() > 1 ? AxisOf(problem.axes[0]) : ConvAxis(),
      .x = AxisOf(problem.axes.back())};
  const BufferId x = pass.x.buffer, dy = pass.y.buffer, dw = pass.weight;
  schedule->Add({.kind = kind,
                 .reads = {x, dy},
                 .writes = {dw},
                 .macs = static_cast<double>(MultiplyAdds(problem)),
                 .function = [=](const RunContext& context) {
                   AddUpDepthwiseGradient(
                       shape,
                       {context.Read<float>(x), context.Read<float>(dy),
                        context.Write<float>(dw)},
                       context.parts());
                 }});
}

}  // namespace convgrad::onednn
