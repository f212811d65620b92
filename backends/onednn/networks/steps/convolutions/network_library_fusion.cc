#include "backends/onednn/networks/steps/convolutions/network_library_fusion.h"

#include "backends/core/convolution/lowering.h"
#include "backends/onednn/execution/onednn_library_step.h"
#include "backends/onednn/library/onednn_candidates.h"
#include "backends/onednn/library/onednn_types.h"
#include "backends/onednn/networks/steps/convolutions/network_conv_descs.h"
#include "backends/onednn/networks/steps/convolutions/network_conv_dtype.h"
#include "backends/onednn/networks/steps/convolutions/network_conv_pass.h"
#include "backends/onednn/networks/steps/convolutions/network_padded_images.h"

namespace convgrad::onednn {
namespace {

using dnnl::memory;

// Returns a tensor like a value, but in `dtype`.
NetworkTensor LikeIn(DataType dtype, const std::string& name,
                     const NetworkBuilder& builder) {
  NetworkTensor like = builder.Like(name);
  like.blocks.dtype = dtype;
  return like;
}

// Appends a step that writes one number, and returns its buffer.
BufferId AddNumber(float number, Schedule* schedule) {
  const BufferId buffer = schedule->AddArray<float>(1);
  schedule->Add({.kind = "fusion checks",
                 .writes = {buffer},
                 .function = [buffer, number](const RunContext& context) {
                   *context.Write<float>(buffer) = number;
                 }});
  return buffer;
}

}  // namespace

std::string LibraryFusion::bias() const {
  return OperandAt(steps_.convolution, 2);
}

std::optional<LibraryFusion::Way> LibraryFusion::WayIn(
    DataType dtype, NetworkBuilder* builder) const {
  Way way = {.dtype = dtype,
             .problem = steps_.problem,
             .like = LikeIn(dtype, steps_.result, *builder)};
  way.scales_weight = steps_.norm != nullptr && dtype == DataType::kF32;
  way.has_bias =
      way.scales_weight || (steps_.norm == nullptr && !bias().empty());
  way.is_padded =
      dtype == DataType::kBF16 && PadsImages(way.problem, way.like, *builder);
  if (way.is_padded) {
    way.problem = PaddedProblem(way.problem);
    way.descs.data = PaddedImagesDesc(way.problem);
  } else {
    if (dtype == builder->dtype()) {
      way.callers = CallersInput(x(), dtype, builder);
    }
    way.descs.data =
        way.callers ? way.callers->desc : DescOf(LikeIn(dtype, x(), *builder));
  }
  way.epilogue = MakeConvEpilogue(
      way.problem, DescOf(way.like),
      {.scale_and_shift = steps_.norm != nullptr && !way.scales_weight,
       .addend = !steps_.addend.empty(),
       .activation = steps_.activation.activation});
  way.descs.weight = ConvWeightDesc(Pass::kForward, way.problem, dtype);
  way.descs.out = DescOf(way.like);
  way.descs.post_ops = way.epilogue.post_ops;
  if (way.has_bias) {
    way.descs.bias = {{way.problem.out_channels},
                      memory::data_type::f32,
                      memory::format_tag::a};
  }
  for (const bool as_it_lies : {true, false}) {
    if (!as_it_lies) way.descs.data = WithAnyLayout(way.descs.data);
    way.pass = MakePassDesc(Pass::kForward, way.problem, way.descs);
    if (way.pass && !IsPlainLoop(way.pass)) return way;
  }
  return std::nullopt;
}

void LibraryFusion::Append(const Way& way, NetworkBuilder* builder) const {
  Schedule& schedule = builder->schedule();
  LibraryStep step({.kind = "conv forward",
                    .macs = static_cast<double>(MultiplyAdds(steps_.problem)),
                    .primitive_desc = way.pass},
                   &schedule);
  const PassArguments args = ArgumentsOf(Pass::kForward);
  step.Read(args.data, Data(way, builder));
  FoldedNorm norm;
  if (steps_.norm != nullptr) {
    norm = AddFoldedNorm(*steps_.norm, bias(), builder);
  }
  const LibraryTensor weight = Weight(way, builder);
  if (way.scales_weight) {
    const ReorderScales scales{norm.scale, way.problem.out_channels,
                               way.problem.groups > 1 ? 3 : 1};
    step.Read(args.weight, weight, &scales);
  } else {
    step.Read(args.weight, weight);
  }
  if (way.has_bias) {
    step.Read(DNNL_ARG_BIAS,
              {way.scales_weight ? norm.shift : builder->Parameter(bias()),
               way.descs.bias});
  }
  ReadPostOps(way, norm, builder, &step);
  const NetworkTensor y = builder->AddValue(steps_.result);
  const NetworkTensor computed = ComputedIn(way.dtype, y, &schedule);
  step.Write(args.out, TensorOf(computed));
  step.Finish();
  AddConversion(computed, y, &schedule);
}

LibraryTensor LibraryFusion::Data(const Way& way,
                                  NetworkBuilder* builder) const {
  if (way.is_padded) return PaddedImages(x(), way.problem, builder);
  if (way.callers) return *way.callers;
  return TensorOf(
      Converted(builder->Value(x()), way.dtype, &builder->schedule()));
}

LibraryTensor LibraryFusion::Weight(const Way& way,
                                    NetworkBuilder* builder) const {
  return way.is_padded
             ? PaddedWeight(weight(), way.problem, builder)
             : ConvolutionWeight(weight(), way.problem, way.dtype, builder);
}

void LibraryFusion::ReadPostOps(const Way& way, const FoldedNorm& norm,
                                NetworkBuilder* builder,
                                LibraryStep* step) const {
  const ConvEpilogue& epilogue = way.epilogue;
  const auto read = [&](int position, int argument,
                        const LibraryTensor& tensor) {
    if (position < 0) return;
    step->ReadAsItLies(DNNL_ARG_ATTR_MULTIPLE_POST_OP(position) | argument,
                       tensor);
  };
  read(epilogue.scale, DNNL_ARG_SRC_1,
       {norm.scale, PerChannelDesc(way.problem)});
  read(epilogue.shift, DNNL_ARG_SRC_1,
       {norm.shift, PerChannelDesc(way.problem)});
  if (epilogue.addend >= 0) {
    read(epilogue.addend, DNNL_ARG_SRC_1,
         TensorOf(Converted(builder->Value(steps_.addend), way.dtype,
                            &builder->schedule())));
  }
  if (epilogue.slope < 0) return;
  const memory::dims ones(way.problem.axes.size() + 2, 1);
  read(epilogue.slope, DNNL_ARG_WEIGHTS,
       {AddNumber(steps_.activation.alpha, &builder->schedule()),
        {ones, memory::data_type::f32, ones}});
}

}  // namespace convgrad::onednn
