#include "backends/cuda/cuda_graph_shapes.h"

namespace convgrad::cuda {

absl::string_view NameOf(Format format) {
  return format == Format::kNXC ? "nxc" : "ncx";
}

Dims DimsFor(const ConvProblem& problem, Role role) {
  if (role == Role::kData) return InputDims(problem);
  return role == Role::kWeight ? WeightDims(problem) : OutputDims(problem);
}

GraphTensor GraphTensorOf(const Dims& dims, Format format) {
  GraphTensor tensor;
  tensor.dims.assign(dims.begin(), dims.end());
  if (dims.size() == 3) tensor.dims.insert(tensor.dims.begin() + 2, 1);
  const size_t rank = tensor.dims.size();
  tensor.strides.resize(rank);
  int64_t stride = 1;
  const auto place = [&](size_t axis) {
    tensor.strides[axis] = stride;
    stride *= tensor.dims[axis];
  };
  if (format == Format::kNXC) place(1);
  for (size_t axis = rank; axis-- > 2;) place(axis);
  if (format == Format::kNCX) place(1);
  place(0);
  return tensor;
}

std::vector<int64_t> AxisValues(const ConvProblem& problem,
                                int64_t SpatialAxis::*field) {
  std::vector<int64_t> values;
  if (problem.axes.size() == 1) values.push_back(SpatialAxis().*field);
  for (const SpatialAxis& axis : problem.axes) values.push_back(axis.*field);
  return values;
}

}  // namespace convgrad::cuda
