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

inline fe::DataType_t TypeOf(DataType dtype) {
  switch (dtype) {
    case DataType::kBF16:
      return fe::DataType_t::BFLOAT16;
    case DataType::kF16:
      return fe::DataType_t::HALF;
    case DataType::kF32:
    // Convolutions don't have these dtypes.
    case DataType::kU8:
    case DataType::kI64:
    case DataType::kU16:
      break;
  }
  return fe::DataType_t::FLOAT;
}

enum Uid : int64_t { kData = 1, kWeight, kOut, kBias };

inline fe::graph::Tensor_attributes Describe(Uid uid, const GraphTensor& shape,
                                             DataType dtype) {
  fe::graph::Tensor_attributes tensor;
  tensor.set_uid(uid).set_dim(shape.dims).set_stride(shape.strides);
  tensor.set_data_type(TypeOf(dtype));
  return tensor;
}

// Describes the three tensors of a convolution.
class Shapes {
 public:
  explicit Shapes(const GraphSpec& spec) : spec_(spec) {}

  fe::graph::Tensor_attributes Data(DataType dtype) const {
    return Describe(kData, Of(Role::kData), dtype);
  }
  fe::graph::Tensor_attributes Weight(DataType dtype) const {
    return Describe(kWeight, Of(Role::kWeight), dtype);
  }
  fe::graph::Tensor_attributes Out(DataType dtype) const {
    return Describe(kOut, Of(Role::kOut), dtype);
  }

 private:
  GraphTensor Of(Role role) const {
    return GraphTensorOf(DimsFor(spec_.problem, role), spec_.format);
  }

  const GraphSpec& spec_;
};

template <typename Attributes>
Attributes ConvAttributes(const ConvProblem& problem) {
  Attributes attributes;
  attributes.set_pre_padding(AxisValues(problem, &SpatialAxis::pad_begin))
      .set_post_padding(AxisValues(problem, &SpatialAxis::pad_end))
      .set_stride(AxisValues(problem, &SpatialAxis::stride))
      .set_dilation(AxisValues(problem, &SpatialAxis::dilation));
  return attributes;
}

inline void SetResult(const TensorHandle& tensor,
                      const fe::graph::Tensor_attributes& shape) {
  tensor->set_output(true)
      .set_uid(shape.get_uid())
      .set_dim(shape.get_dim())
      .set_stride(shape.get_stride())
      .set_data_type(shape.get_data_type());
}

inline TensorHandle AddForward(const GraphSpec& spec, fe::graph::Graph* graph) {
  const Shapes shapes(spec);
  TensorHandle sum = graph->conv_fprop(
      graph->tensor(shapes.Data(spec.operands)),
      graph->tensor(shapes.Weight(spec.operands)),
      ConvAttributes<fe::graph::Conv_fprop_attributes>(spec.problem));
  if (!spec.bias) return sum;
  const fe::graph::Tensor_attributes out = shapes.Out(spec.result);
  sum->set_dim(out.get_dim()).set_stride(out.get_stride());
  const GraphTensor bias =
      GraphTensorOf(PerChannelDims(spec.problem), spec.format);
  return graph->pointwise(
      sum, graph->tensor(Describe(kBias, bias, DataType::kF32)),
      fe::graph::Pointwise_attributes().set_mode(fe::PointwiseMode_t::ADD));
}

// Adds the pass to the graph; its tensors have their Uids.
inline void AddPass(const GraphSpec& spec, fe::graph::Graph* graph) {
  const Shapes shapes(spec);
  switch (spec.pass) {
    case Pass::kForward:
      return SetResult(AddForward(spec, graph), shapes.Out(spec.result));
    case Pass::kBackwardData:
      return SetResult(
          graph->conv_dgrad(
              graph->tensor(shapes.Out(spec.operands)),
              graph->tensor(shapes.Weight(spec.operands)),
              ConvAttributes<fe::graph::Conv_dgrad_attributes>(spec.problem)),
          shapes.Data(spec.result));
    case Pass::kBackwardWeight:
      return SetResult(
          graph->conv_wgrad(
              graph->tensor(shapes.Out(spec.operands)),
              graph->tensor(shapes.Data(spec.operands)),
              ConvAttributes<fe::graph::Conv_wgrad_attributes>(spec.problem)),
          shapes.Weight(spec.result));
  }
}

}  // namespace convgrad::cuda
