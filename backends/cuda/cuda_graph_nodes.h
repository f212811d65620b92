// Adds a pass to a cudnn-frontend graph. Only cuda_graph.cc may include this
// header.
#pragma once

#include <memory>

#include "backends/cuda/cuda_graph.h"
#include "backends/cuda/cuda_graph_shapes.h"
#include "cudnn_frontend.h"

namespace convgrad::cuda {

namespace fe = cudnn_frontend;
using TensorHandle = std::shared_ptr<fe::graph::Tensor_attributes>;

// Requires: a dtype of convolutions.
inline fe::DataType_t TypeOf(DataType dtype) {
  if (dtype == DataType::kBF16) return fe::DataType_t::BFLOAT16;
  return dtype == DataType::kF16 ? fe::DataType_t::HALF : fe::DataType_t::FLOAT;
}

enum Uid : int64_t { kData = 1, kWeight, kOut, kBias };

inline fe::graph::Tensor_attributes Describe(Uid uid, const GraphTensor& shape,
                                             DataType dtype) {
  fe::graph::Tensor_attributes tensor;
  tensor.set_uid(uid).set_dim(shape.dims).set_stride(shape.strides);
  tensor.set_data_type(TypeOf(dtype));
  return tensor;
}

// Describes the convolution's tensor with `role`.
inline fe::graph::Tensor_attributes Describe(const GraphSpec& spec, Role role,
                                             DataType dtype) {
  constexpr Uid kUids[] = {kData, kWeight, kOut};  // by Role
  return Describe(kUids[static_cast<size_t>(role)],
                  GraphTensorOf(DimsFor(spec.problem, role), spec.format),
                  dtype);
}

template <typename Attributes>
Attributes ConvAttributes(const ConvProblem& problem) {
  Attributes attributes;
  attributes.set_pre_padding(AxisValues(problem, &SpatialAxis::pad_begin))
      .set_post_padding(AxisValues(problem, &SpatialAxis::pad_end))
      .set_stride(AxisValues(problem, &SpatialAxis::stride))
      .set_dilation(AxisValues(problem, &SpatialAxis::dilation));
  return attributes;
}

inline TensorHandle AddBias(const GraphSpec& spec, const TensorHandle& sum,
                            fe::graph::Graph* graph) {
  const ConvProblem& problem = spec.problem;
  const GraphTensor out = GraphTensorOf(OutputDims(problem), spec.format);
  sum->set_dim(out.dims).set_stride(out.strides);
  const GraphTensor bias = GraphTensorOf(
      BroadcastBiasDims(problem, PerChannelBiasDims(problem)), spec.format);
  return graph->pointwise(
      sum, graph->tensor(Describe(kBias, bias, DataType::kF32)),
      fe::graph::Pointwise_attributes().set_mode(fe::PointwiseMode_t::ADD));
}

// Adds the convolution to the graph and returns its result.
inline TensorHandle AddSums(const GraphSpec& spec, fe::graph::Graph* graph) {
  const auto operand = [&](Role role) {
    return graph->tensor(Describe(spec, role, spec.operands));
  };
  const ConvProblem& problem = spec.problem;
  switch (spec.pass) {
    case Pass::kForward:
      return graph->conv_fprop(
          operand(Role::kData), operand(Role::kWeight),
          ConvAttributes<fe::graph::Conv_fprop_attributes>(problem));
    case Pass::kBackwardData:
      return graph->conv_dgrad(
          operand(Role::kOut), operand(Role::kWeight),
          ConvAttributes<fe::graph::Conv_dgrad_attributes>(problem));
    case Pass::kBackwardWeight:
      break;
  }
  return graph->conv_wgrad(
      operand(Role::kOut), operand(Role::kData),
      ConvAttributes<fe::graph::Conv_wgrad_attributes>(problem));
}

// Adds the pass to the graph; its tensors have their Uids.
inline void AddPass(const GraphSpec& spec, fe::graph::Graph* graph) {
  TensorHandle result = AddSums(spec, graph);
  if (spec.bias) result = AddBias(spec, result, graph);
  const fe::graph::Tensor_attributes shape =
      Describe(spec, ResultOf(spec.pass), spec.result);
  result->set_output(true)
      .set_uid(shape.get_uid())
      .set_dim(shape.get_dim())
      .set_stride(shape.get_stride())
      .set_data_type(shape.get_data_type());
}

}  // namespace convgrad::cuda
