#include "backends/onednn/networks/steps/convolutions/network_conv_descs.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/match.h"
#include "backends/onednn/library/onednn_candidates.h"
#include "backends/onednn/library/onednn_types.h"

namespace convgrad::onednn {
namespace {

// Returns whether the implementation computes a strided depthwise gradient as
// one of many small groups. The library's own depthwise kernel comes after it,
// and is 10 times faster.
bool IsSlowDepthwise(Pass pass, const ConvProblem& problem,
                     absl::string_view implementation) {
  return pass == Pass::kBackwardData && IsDepthwise(problem) &&
         absl::StartsWith(implementation, "brgconv_strided");
}

// Returns whether the library's kernels, which count in 32 bits, have room for
// the window. They would truncate larger numbers.
bool FitsKernels(const ConvProblem& problem) {
  constexpr int64_t kMost = 1 << 29;
  return std::all_of(
      problem.axes.begin(), problem.axes.end(), [](const SpatialAxis& axis) {
        return MeaningfulStride(axis) <= kMost && axis.dilation <= kMost &&
               std::abs(axis.pad_begin) <= kMost &&
               std::abs(axis.pad_end) <= kMost;
      });
}

}  // namespace

dnnl::primitive_desc_base MakePassDesc(Pass pass, const ConvProblem& problem,
                                       const ConvDescs& descs) {
  if (!FitsKernels(problem)) return {};
  ConvDescs forward = descs;
  forward.bias = {};
  if (descs.data.get_data_type() != descs.out.get_data_type()) {
    forward.data = {descs.data.get_dims(), descs.out.get_data_type(),
                    dnnl::memory::format_tag::any};
  }
  forward.weight = {descs.weight.get_dims(), descs.out.get_data_type(),
                    dnnl::memory::format_tag::any};
  return MakePassDesc(
      pass, problem, descs, forward, [&](absl::string_view implementation) {
        return WritesBeyondScratch(problem, implementation) ||
               MissesRows(pass, problem, implementation) ||
               MisplacesPlanes(pass, problem, implementation) ||
               CrashesWithoutTaps(pass, problem, implementation) ||
               FillsTilesWithNeighbours(pass, problem, implementation) ||
               IsSlowDepthwise(pass, problem, implementation);
      });
}

dnnl::memory::desc ConvWeightDesc(Pass pass, const ConvProblem& problem,
                                  DataType dtype) {
  if (pass == Pass::kBackwardWeight) dtype = DataType::kF32;
  return {WeightDimsOf(problem), TypeOf(dtype), dnnl::memory::format_tag::any};
}

dnnl::primitive_desc_base FindFastPass(Pass pass, const ConvProblem& problem,
                                       const dnnl::memory::desc& data,
                                       const dnnl::memory::desc& out) {
  const dnnl::memory::desc weight = ConvWeightDesc(pass, problem, DtypeOf(out));
  dnnl::primitive_desc_base found =
      MakePassDesc(pass, problem, {data, weight, out, {}});
  if (found && IsPlainLoop(found)) return {};
  return found;
}

dnnl::memory::desc WithAnyLayout(const dnnl::memory::desc& desc) {
  return {desc.get_dims(), desc.get_data_type(), dnnl::memory::format_tag::any};
}

LibraryTensor TensorOf(const NetworkTensor& tensor) {
  return {tensor.buffer, DescOf(tensor)};
}

dnnl::memory::desc PlainWeightDesc(const ConvProblem& problem) {
  return FormatDesc(WeightDimsOf(problem), DataType::kF32, Format::kNCX);
}

std::optional<LibraryTensor> CallersInput(const std::string& name,
                                          DataType dtype,
                                          NetworkBuilder* builder) {
  const TensorDescriptor* input = builder->InputDescriptor(name);
  const bool lies_well = input != nullptr && input->dtype == dtype &&
                         input->dims[1] <= kFewChannels;
  if (!lies_well) return std::nullopt;
  return LibraryTensor{
      builder->InputBuffer(name),
      FormatDesc({input->dims.begin(), input->dims.end()}, dtype,
                 input->layout == Layout::kNXC ? Format::kNXC : Format::kNCX)};
}

bool IsDepthwise(const ConvProblem& problem) {
  return problem.groups > 1 && problem.groups == problem.in_channels &&
         problem.groups == problem.out_channels;
}

ConvProblem MirrorOf(ConvProblem problem) {
  problem.transposed = false;
  std::swap(problem.in_channels, problem.out_channels);
  for (SpatialAxis& axis : problem.axes) {
    std::swap(axis.in, axis.out);
    // The mirror doesn't read the output padding, which is a tail of its data.
    // The library allows a tail that is shorter than a stride.
    if (axis.output_padding >= axis.stride) {
      axis.pad_end = std::max<int64_t>(axis.pad_end - axis.output_padding, 0);
    }
    axis.output_padding = 0;
  }
  problem.bias.reset();
  return problem;
}

}  // namespace convgrad::onednn
