#include "backends/onednn/networks/network_conv_descs.h"

#include <utility>

#include "backends/onednn/onednn_candidates.h"

namespace convgrad::onednn {

dnnl::primitive_desc_base MakePassDesc(Pass pass, const ConvProblem& problem,
                                       const ConvDescs& descs) {
  ConvDescs forward = descs;
  forward.bias = {};
  forward.weight = {descs.weight.get_dims(), descs.out.get_data_type(),
                    dnnl::memory::format_tag::any};
  return MakePassDesc(pass, problem, descs, forward,
                      [&](absl::string_view implementation) {
                        return WritesBeyondScratch(problem, implementation);
                      });
}

ConvProblem MirrorOf(ConvProblem problem) {
  problem.transposed = false;
  std::swap(problem.in_channels, problem.out_channels);
  for (SpatialAxis& axis : problem.axes) {
    std::swap(axis.in, axis.out);
    axis.output_padding = 0;
  }
  problem.bias.reset();
  return problem;
}

}  // namespace convgrad::onednn
