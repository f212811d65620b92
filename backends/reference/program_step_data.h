// `StepData` is one step of a program with its data, in doubles and row-major
// logical order.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "backends/core/checked_math.h"
#include "backends/core/program/philox.h"
#include "backends/core/program/program.h"
#include "backends/core/program/program_shapes.h"

namespace convgrad {

using Values = std::vector<double>;

// The precision in which numbers are written.
enum class Precision {
  kOperand,  // the compute dtype: inputs, and weights of products
  kCompute,  // the compute dtype: results of steps, gradients of values
  kF32,      // losses, statistics, gradients of parameters
  // Intermediate numbers of a step: double here, at least f32 elsewhere.
  kIntermediate,
};

// Changes numbers as writing them does, e.g. rounds them.
using WriteFunction = absl::FunctionRef<void(Precision, Values*)>;

struct StepData {
  const ProgramStep* step;
  size_t index;  // of the step
  const ProgramShapes* shapes;
  DropoutSeed seed;
  // Operands by position; empty if omitted.
  std::vector<absl::Span<const double>> operands;
  // Only for a backward: the forward's result, and the operands whose gradients
  // are requested.
  absl::Span<const double> result;
  std::vector<bool> wanted;

  // Null: intermediate numbers don't change.
  const WriteFunction* write = nullptr;

  void WriteIntermediate(Values* values) const {
    if (write != nullptr) (*write)(Precision::kIntermediate, values);
  }
  // Changes factors of `products` that are added up to `sums` numbers, as the
  // roundings of intermediate sums change the products if they are added one by
  // one. On average, half of these sums include a product. So its random errors
  // add up to one error times the root of half the number of terms.
  void WriteTerms(int64_t products, int64_t sums, Values* values) const {
    Values written = *values;
    WriteIntermediate(&written);
    const double terms =
        static_cast<double>(products) / static_cast<double>(sums);
    const double errors = std::sqrt(terms / 2);
    for (size_t i = 0; i < written.size(); ++i) {
      double& value = (*values)[i];
      if (written[i] != value) value += errors * (written[i] - value);
    }
  }
  bool Has(size_t position) const {
    return !OperandAt(*step, position).empty();
  }
  bool Wants(size_t position) const {
    return position < wanted.size() && wanted[position];
  }
  // Requires: Has(position).
  const Dims& dims(size_t position) const {
    return shapes->dims.at(OperandAt(*step, position));
  }
  const Dims& result_dims() const { return shapes->dims.at(step->result); }
};

// Returns the axis of the first operand that the attribute `axis` names.
inline size_t AxisOf(const StepData& data) {
  return *StepDims(*data.step, *data.shapes).Axis("axis");
}

// Gradients by position of the operand; empty if not requested.
using StepGradients = std::vector<Values>;

// Returns zeros for each operand.
inline StepGradients ZeroGradients(const StepData& data) {
  StepGradients gradients;
  for (const auto operand : data.operands) {
    gradients.emplace_back(operand.size());
  }
  return gradients;
}

inline int64_t CountOf(const Dims& dims) { return *CheckedProduct(dims); }

// Calls visit(i, at) with each index of a row-major tensor of dims `dims` and
// the offset, `first` and the sum of its index times the stride of each axis.
template <typename Visit>
void ForEachIndex(const Dims& dims, const Dims& strides, int64_t first,
                  const Visit& visit) {
  const int64_t count = CountOf(dims);
  for (int64_t i = 0; i < count; ++i) {
    int64_t at = first;
    for (int64_t rest = i, axis = std::ssize(dims); axis-- > 0;) {
      at += rest % dims[axis] * strides[axis];
      rest /= dims[axis];
    }
    visit(i, at);
  }
}

// Returns for each element of a row-major tensor of dims `dims` the offset of
// its element in a tensor of dims `from`, which is broadcast to them.
inline std::vector<int64_t> BroadcastOffsets(const Dims& from,
                                             const Dims& dims) {
  std::vector<int64_t> offsets;
  ForEachIndex(dims, BroadcastStrides(from, dims), 0,
               [&](int64_t, int64_t at) { offsets.push_back(at); });
  return offsets;
}

// A tensor as batch, channels and positions.
struct ChannelView {
  explicit ChannelView(const Dims& dims)
      : batch(dims[0]),
        channels(dims[1]),
        positions(CountOf(dims) / (dims[0] * dims[1])) {}

  // Returns the channel of the element at `index`.
  int64_t ChannelOf(int64_t index) const {
    return index / positions % channels;
  }

  int64_t batch, channels, positions;
};

}  // namespace convgrad
