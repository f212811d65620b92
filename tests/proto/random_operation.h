// `RandomOperation` makes valid operations of every kind. `SmallBackward` is a
// fixed one for tests that make it invalid.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "backends/core/convolution/conv_operation.h"

namespace convgrad {

class RandomOperation {
 public:
  explicit RandomOperation(uint64_t seed) : random_(seed) {}

  ConvOperation Next() {
    while (true) {
      ConvOperation operation = Draw();
      if (Validate(operation).ok()) return operation;
    }
  }

 private:
  int64_t From(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  bool Coin() { return From(0, 1) == 1; }

  ConvProblem DrawProblem() {
    while (true) {
      ConvProblem problem;
      problem.transposed = Coin();
      problem.batch = From(0, 3);
      problem.groups = From(1, 3);
      problem.in_channels = problem.groups * From(1, 4);
      problem.out_channels = problem.groups * From(1, 4);
      problem.relu = Coin();
      problem.axes.resize(From(0, 3));
      for (SpatialAxis& axis : problem.axes) {
        axis = {From(1, 9), From(1, 4), From(1, 3), From(1, 2),
                From(0, 3), From(0, 3), From(0, 1), 1};
        if (!problem.transposed) axis.output_padding = 0;
      }
      auto resolved = Resolve(problem, ShapeHints());
      if (resolved.ok()) return *resolved;
    }
  }

  Dims DrawBias(const ConvProblem& problem) {
    switch (From(0, 3)) {
      case 0:
        return {};
      case 1:
        return {1};
      case 2:
        return {problem.out_channels};
      default:
        Dims dims = OutputDims(problem);
        for (int64_t& extent : dims) extent = Coin() ? extent : 1;
        return dims;
    }
  }

  DataType DrawMixed() { return Coin() ? DataType::kF32 : dtype_; }

  TensorDescriptor Bias(const Dims& dims) {
    return {DrawMixed(), Layout::kNCX, dims, 0, 1};
  }

  TensorDescriptor Activation(DataType dtype, const Dims& dims) {
    constexpr Layout kLayouts[] = {Layout::kNCX, Layout::kNXC,
                                   Layout::kNDC1HWC0};
    TensorDescriptor tensor{dtype, kLayouts[From(0, 2)], dims, 0, 1};
    if (tensor.layout == Layout::kNDC1HWC0) tensor.c0 = c0_;
    return tensor;
  }

  TensorDescriptor Weight(DataType dtype, const ConvProblem& problem) {
    constexpr Layout kLayouts[] = {Layout::kOIX, Layout::kOXI, Layout::kXIO,
                                   Layout::kFractalZ3D};
    TensorDescriptor tensor{dtype, kLayouts[From(0, 3)], WeightDims(problem), 0,
                            1};
    if (tensor.layout == Layout::kFractalZ3D) {
      tensor.c0 = c0_;
      tensor.groups = problem.groups;
    }
    return tensor;
  }

  ResultRequest Draw(Result which, const ConvProblem& problem) {
    const DataType dtype = DrawMixed();
    const Dims dims = DimsOf(problem, which);
    const float scale = Coin() ? 1.0f : 0.125f;
    if (which == Result::kGradBias) {
      return {which, {dtype, Layout::kNCX, dims, 0, 1}, scale};
    }
    return {which,
            which == Result::kGradWeight ? Weight(dtype, problem)
                                         : Activation(dtype, dims),
            scale};
  }

  ConvOperation Draw() {
    dtype_ = static_cast<DataType>(From(0, 2));
    c0_ = dtype_ == DataType::kF32 && Coin() ? 8 : 16;
    ConvOperation operation;
    operation.problem = DrawProblem();
    ConvProblem& problem = operation.problem;
    const Dims output = OutputDims(problem);
    operation.operand(Operand::kInput) = Activation(dtype_, InputDims(problem));
    operation.operand(Operand::kWeight) = Weight(dtype_, problem);
    if (Coin()) {
      operation.direction = Direction::kForward;
      if (Coin()) {
        problem.bias = DrawBias(problem);
        operation.operand(Operand::kBias) = Bias(*problem.bias);
      }
      problem.residual = Coin();
      if (problem.residual) {
        operation.operand(Operand::kResidual) = Activation(DrawMixed(), output);
      }
      operation.results = {Draw(Result::kOutput, problem)};
      return operation;
    }
    operation.direction = Direction::kBackward;
    operation.operand(Operand::kGradOutput) = Activation(dtype_, output);
    if (problem.relu || Coin()) {
      operation.operand(Operand::kOutput) = Activation(DrawMixed(), output);
    }
    std::vector<Result> gradients(kAllResults.begin() + 1, kAllResults.end());
    std::shuffle(gradients.begin(), gradients.end(), random_);
    gradients.resize(From(1, 4));
    for (Result which : gradients) {
      if (which == Result::kGradBias) problem.bias = DrawBias(problem);
      operation.results.push_back(Draw(which, problem));
    }
    return operation;
  }

  std::mt19937_64 random_;
  DataType dtype_ = DataType::kF32;
  int64_t c0_ = 8;
};

// Returns a backward of conv2d_n2_c4_o6_i5x5_k3_p1 for input and weight, f32.
inline ConvOperation SmallBackward() {
  ConvOperation operation;
  operation.direction = Direction::kBackward;
  operation.problem = *Parse("conv2d_n2_c4_o6_i5x5_k3_p1");
  const ConvProblem& problem = operation.problem;
  const TensorDescriptor input{DataType::kF32, Layout::kNCX, InputDims(problem),
                               0, 1};
  const TensorDescriptor weight{DataType::kF32, Layout::kOIX,
                                WeightDims(problem), 0, 1};
  operation.operand(Operand::kInput) = input;
  operation.operand(Operand::kWeight) = weight;
  operation.operand(Operand::kGradOutput) =
      TensorDescriptor{DataType::kF32, Layout::kNCX, OutputDims(problem), 0, 1};
  operation.results = {{Result::kGradInput, input, 1},
                       {Result::kGradWeight, weight, 1}};
  return operation;
}

// Returns the sizes of the payloads that EncodeOperation names.
inline std::vector<int64_t> PayloadBytes(const ConvOperation& operation) {
  std::vector<int64_t> bytes;
  for (const auto& tensor : operation.operands) {
    if (tensor) bytes.push_back(*ByteSize(*tensor));
  }
  return bytes;
}

}  // namespace convgrad
