#include "backends/onednn/networks/schedule/network_ranges.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "backends/kernels/operators/magnitude.h"
#include "backends/onednn/networks/schedule/network_guard.h"

namespace convgrad::onednn {
namespace {

// Appends a step that computes a range from others or from tensors. It may
// overwrite `scratch`.
BufferId AddRange(std::vector<BufferId> reads,
                  std::function<double(const RunContext&)> range,
                  NetworkBuilder* builder, BufferId scratch = kNoBuffer) {
  const BufferId result = builder->AddArray<double>(1);
  builder->Add({.kind = "fusion checks",
                .reads = std::move(reads),
                .writes = {result, scratch},
                .function = [result, range = std::move(range)](
                                const RunContext& context) {
                  *context.Write<double>(result) = range(context);
                }});
  return result;
}

BufferId AddConstant(double value, NetworkBuilder* builder) {
  return AddRange(
      {}, [=](const RunContext&) { return value; }, builder);
}

// Contiguous rows of f32.
struct Rows {
  BufferId buffer;
  int64_t count;
  int64_t length;
};

// Appends a step that finds the largest of the rows' sums of magnitudes, or the
// largest magnitude if the rows have one element each.
BufferId AddLargestSum(const Rows& rows, NetworkBuilder* builder) {
  const BufferId sums = builder->AddArray<float>(rows.count);
  return AddRange(
      {rows.buffer},
      [=](const RunContext& context) {
        auto* sum = context.Write<float>(sums);
        const auto* elements = context.Read<float>(rows.buffer);
        const auto sum_row = [&](int64_t row) {
          sum[row] = SumOfMagnitudes(
              {elements + row * rows.length, static_cast<size_t>(rows.length)});
        };
        // Waking the team takes as long as summing this many elements.
        constexpr int64_t kSmall = 1 << 16;
        if (rows.count * rows.length > kSmall) {
          context.ForParts(rows.count, sum_row);
        } else {
          for (int64_t row = 0; row < rows.count; ++row) sum_row(row);
        }
        return LargestMagnitude({sum, static_cast<size_t>(rows.count)});
      },
      builder, sums);
}

// Returns at least 1, so that a product with it is also a bound of its factor.
BufferId InputRange(const std::string& name, NetworkBuilder* builder) {
  const TensorDescriptor& input = *builder->InputDescriptor(name);
  if (input.dtype == DataType::kU8) return AddConstant(255, builder);
  // In bf16, 65535 rounds up to 65536.
  if (input.dtype == DataType::kU16) return AddConstant(65536, builder);
  if (input.dtype != DataType::kF32 && input.dtype != DataType::kBF16) {
    return kNoBuffer;
  }
  const BufferId values = builder->InputBuffer(name);
  const int64_t count = *ByteSize(input) / ByteSizeOf(input.dtype);
  const int64_t parts = MagnitudeParts(count);
  const BufferId largest = builder->AddArray<float>(parts);
  return AddRange(
      {values},
      [=, dtype = input.dtype](const RunContext& context) {
        const float magnitude =
            LargestMagnitude(dtype, context.At(values), count, context.parts(),
                             context.Write<float>(largest));
        return std::max(magnitude, 1.0F);
      },
      builder, largest);
}

BufferId ConvolutionRange(const ProgramStep& step, NetworkBuilder* builder) {
  const BufferId x = RangeOf(step.operands[0], builder);
  if (x == kNoBuffer) return kNoBuffer;
  const Dims& weight = builder->shapes().dims.at(step.operands[1]);
  int64_t length = 1;
  for (size_t i = 1; i < weight.size(); ++i) length *= weight[i];
  const BufferId sum = AddLargestSum(
      {builder->Parameter(step.operands[1]), weight[0], length}, builder);
  const std::string bias = OperandAt(step, 2);
  const BufferId shift =
      bias.empty()
          ? kNoBuffer
          : AddLargestSum({builder->Parameter(bias), weight[0], 1}, builder);
  return AddRange(
      {x, sum, shift},
      [=](const RunContext& context) {
        const double more =
            shift == kNoBuffer ? 0 : *context.Read<double>(shift);
        return *context.Read<double>(sum) * *context.Read<double>(x) + more;
      },
      builder);
}

// Returns the range of a batch_norm of running statistics.
BufferId NormRange(const ProgramStep& step, NetworkBuilder* builder) {
  const BufferId x = RangeOf(step.operands[0], builder);
  if (x == kNoBuffer) return kNoBuffer;
  const int64_t channels = builder->shapes().dims.at(step.operands[0])[1];
  std::vector<BufferId> parameters, reads = {x};
  for (size_t operand = 1; operand <= 4; ++operand) {
    parameters.push_back(builder->Parameter(OperandAt(step, operand)));
    reads.push_back(parameters.back());
  }
  const double epsilon = FloatAttribute(step, "eps");
  return AddRange(
      reads,
      [=](const RunContext& context) {
        const auto at = [&](size_t i, int64_t c, double otherwise) -> double {
          return parameters[i] == kNoBuffer
                     ? otherwise
                     : context.Read<float>(parameters[i])[c];
        };
        double largest = 1;
        for (int64_t c = 0; c < channels; ++c) {
          const double scale = at(0, c, 1) / std::sqrt(at(3, c, 1) + epsilon);
          // Makes sure that the scaled operand is within the range as well.
          const double range = std::abs(scale) * (*context.Read<double>(x) +
                                                  std::abs(at(2, c, 0))) +
                               std::abs(at(1, c, 0));
          largest = range <= largest ? largest : range;
          if (std::isnan(range)) return range;
        }
        return largest;
      },
      builder);
}

// Returns the sum of the operands' ranges, or the largest of them.
BufferId CombinedRange(const ProgramStep& step, bool is_sum,
                       NetworkBuilder* builder) {
  std::vector<BufferId> ranges;
  for (const std::string& operand : step.operands) {
    if (FindParameter(builder->operation().program(), operand) != nullptr) {
      return kNoBuffer;
    }
    ranges.push_back(RangeOf(operand, builder));
    if (ranges.back() == kNoBuffer) return kNoBuffer;
  }
  return AddRange(
      ranges,
      [=](const RunContext& context) {
        double range = 0;
        for (const BufferId buffer : ranges) {
          const double more = *context.Read<double>(buffer);
          if (std::isnan(more)) return more;
          range = is_sum ? range + more : std::max(range, more);
        }
        return range;
      },
      builder);
}

// Returns a function of the range of the step's operand.
BufferId MappedRange(const ProgramStep& step, double (*map)(double),
                     NetworkBuilder* builder) {
  const BufferId x = RangeOf(step.operands[0], builder);
  if (x == kNoBuffer) return kNoBuffer;
  return AddRange(
      {x},
      [=](const RunContext& context) { return map(*context.Read<double>(x)); },
      builder);
}

// A relu6 keeps NaN, and only a safe range excludes it.
double CappedRange(double range) {
  return IsSafeRange(range) ? std::min(range, 6.0) : range;
}

// The magnitudes of bicubic weights add up to less than 1.4 on an axis, and
// there are two axes.
double BicubicRange(double range) { return 2 * range; }

BufferId ResultRange(const ProgramStep& step, NetworkBuilder* builder) {
  switch (step.op) {
    case Operator::kConv:
      return ConvolutionRange(step, builder);
    case Operator::kBatchNorm:
      return BoolAttribute(step, "training") ? kNoBuffer
                                             : NormRange(step, builder);
    case Operator::kRelu6:
      return MappedRange(step, &CappedRange, builder);
    case Operator::kUpsample:
      return WordAttribute(step, "mode") == "bicubic"
                 ? MappedRange(step, &BicubicRange, builder)
                 : RangeOf(step.operands[0], builder);
    case Operator::kAdd:
      return HasAttribute(step, "other") ? kNoBuffer
                                         : CombinedRange(step, true, builder);
    case Operator::kConcat:
      return CombinedRange(step, false, builder);
    case Operator::kAvgPool:
      // With divisor_override, a mean may be larger than its elements.
      return HasAttribute(step, "divisor_override")
                 ? kNoBuffer
                 : RangeOf(step.operands[0], builder);
    case Operator::kDropout:
      return BoolAttribute(step, "training")
                 ? kNoBuffer
                 : RangeOf(step.operands[0], builder);
    case Operator::kRelu:
    case Operator::kMaxPool:
    case Operator::kAdaptiveAvgPool:
    case Operator::kAdaptiveMaxPool:
    case Operator::kMean:
    case Operator::kFlatten:
      return RangeOf(step.operands[0], builder);
    default:
      return kNoBuffer;
  }
}

}  // namespace

BufferId RangeOf(const std::string& name, NetworkBuilder* builder) {
  const auto found = builder->ranges().find(name);
  if (found != builder->ranges().end()) return found->second;
  BufferId range = kNoBuffer;
  if (builder->InputDescriptor(name) != nullptr) {
    range = InputRange(name, builder);
  } else {
    for (const ProgramStep& step : builder->operation().program().steps) {
      if (step.result == name) range = ResultRange(step, builder);
    }
  }
  return builder->ranges()[name] = range;
}

}  // namespace convgrad::onednn
