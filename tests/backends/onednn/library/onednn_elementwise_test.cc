// Compares every dtype with plain loops. The code doesn't depend on the CPU's
// instructions.
#include "backends/onednn/library/onednn_elementwise.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "backends/core/logical_tensor.h"
#include "tests/backends/onednn/library/element_samples.h"

namespace convgrad::onednn {
namespace {

// Shapes whose runs are within a block, over several blocks, and long enough
// for several threads.
const Dims kShapes[] = {
    {2, 5, 3, 7}, {1, 3, 2500}, {3, 1, 2, 2, 3}, {2, 33}, {1, 1, 20001}};

constexpr int kThreads[] = {1, 3};

// Calls body with descriptors of `dims` in every pair of dtypes, in either
// layout.
template <typename Body>
void ForEachPair(const Dims& dims, const Body& body) {
  for (DataType first : kAllDataTypes) {
    for (DataType second : kAllDataTypes) {
      for (Layout layout : kBothLayouts) {
        const TensorDescriptor a{first, layout, dims};
        const TensorDescriptor b{second, layout, dims};
        SCOPED_TRACE(absl::StrCat(ToString(a), " and ", ToString(b)));
        body(a, b);
      }
    }
  }
}

TEST(MaskGradient, KeepsTheBitsWhereTheOutputIsPositive) {
  const auto check = [](const TensorDescriptor& g, const TensorDescriptor& y) {
    const double unit = SmallestSubnormal(y.dtype);
    const Sample grad = MakeSample(g, 0.375, true, 1);
    const Sample output = MakeSample(y, unit, true, 2);
    const std::vector<int64_t> at = LogicalOffsets(g), by = LogicalOffsets(y);
    for (int threads : kThreads) {
      Sample masked(g);
      MaskGradient(threads, g, grad.bytes.data(), y.dtype, output.bytes.data(),
                   masked.bytes.data());
      for (size_t i = 0; i < at.size(); ++i) {
        const bool kept = output.Value(by[i]) > 0;
        ASSERT_TRUE(IsRounded(masked, at[i], kept ? grad.Value(at[i]) : 0.0));
      }
    }
  };
  for (const Dims& dims : kShapes) ForEachPair(dims, check);
}

// Compares bits, including NaN payloads.
TEST(MaskGradient, KnowsThePositiveNumbersOfEvery16BitPattern) {
  for (DataType dtype : {DataType::kBF16, DataType::kF16}) {
    const TensorDescriptor descriptor{dtype, Layout::kNCX, {1, 1, 65536}};
    Sample output(descriptor), masked(descriptor);
    std::vector<uint16_t> grad(65536), kept(65536);
    for (size_t i = 0; i < grad.size(); ++i) {
      const auto bits = static_cast<uint16_t>(i);
      std::memcpy(output.At(i), &bits, sizeof(bits));
      grad[i] = static_cast<uint16_t>(~bits);
      kept[i] = output.Value(i) > 0 ? grad[i] : 0;
    }
    MaskGradient(1, descriptor, grad.data(), dtype, output.bytes.data(),
                 masked.bytes.data());
    EXPECT_EQ(std::memcmp(masked.bytes.data(), kept.data(), 2 * kept.size()),
              0);
  }
}

TEST(ReluInPlace, ClearsNegativeNumbersAndKeepsNan) {
  for (const Dims& dims : kShapes) {
    for (DataType dtype : kAllDataTypes) {
      SCOPED_TRACE(NameOf(dtype));
      for (double unit : {0.375, SmallestSubnormal(dtype)}) {
        const Sample before =
            MakeSample({dtype, Layout::kNXC, dims}, unit, true, 3);
        Sample after = before;
        ReluInPlace(2, after.descriptor, after.bytes.data());
        for (int64_t i = 0; i < ElementCount(after.descriptor); ++i) {
          const double value = before.Value(i);
          ASSERT_TRUE(IsRounded(after, i, value <= 0 ? 0.0 : value));
        }
      }
    }
  }
}

// The arguments of ApplyEpilogue besides its Epilogue.
struct EpilogueCase {
  Epilogue epilogue;
  TensorDescriptor result;
  double unit = 0.375;
  bool has_sum = true;
};

float Added(float sum, double addend) {
  return static_cast<float>(static_cast<double>(sum) + addend);
}

void CheckEpilogue(const EpilogueCase& given) {
  const Epilogue& epilogue = given.epilogue;
  TensorDescriptor wide = given.result;
  wide.dtype = DataType::kF32;
  const TensorDescriptor residual_descriptor =
      epilogue.residual.value_or(StepTensor{wide}).descriptor;
  const Dims bias_dims = epilogue.bias ? epilogue.bias->descriptor.dims
                                       : Dims(given.result.dims.size(), 1);
  const Sample sum = MakeSample(wide, given.unit, true, 4);
  const Sample residual = MakeSample(residual_descriptor, given.unit, true, 5);
  const Sample bias = MakeSample({DataType::kF32, Layout::kNCX, bias_dims},
                                 given.unit, false, 6);
  const std::vector<int64_t> at = LogicalOffsets(given.result);
  const std::vector<int64_t> by = LogicalOffsets(residual_descriptor);
  const auto floats = [](const Sample& sample) {
    return reinterpret_cast<const float*>(sample.bytes.data());
  };
  for (int threads : kThreads) {
    Sample result(given.result);
    ApplyEpilogue(threads, epilogue, given.has_sum ? floats(sum) : nullptr,
                  epilogue.bias ? floats(bias) : nullptr,
                  epilogue.residual ? residual.bytes.data() : nullptr,
                  given.result, result.bytes.data());
    for (size_t i = 0; i < at.size(); ++i) {
      // The bias's element: its axes are the result's or 1.
      int64_t rest = static_cast<int64_t>(i), bias_at = 0, step = 1;
      for (size_t axis = bias_dims.size(); axis-- > 0;) {
        const int64_t index = rest % given.result.dims[axis];
        rest /= given.result.dims[axis];
        if (bias_dims[axis] > 1) bias_at += index * step;
        step *= bias_dims[axis];
      }
      float value =
          given.has_sum ? static_cast<float>(sum.Value(at[i])) : -0.0f;
      if (epilogue.bias) value = Added(value, bias.Value(bias_at));
      if (epilogue.residual) value = Added(value, residual.Value(by[i]));
      if (epilogue.relu && value < 0) value = 0;
      if (epilogue.scale != 1) value *= epilogue.scale;
      ASSERT_TRUE(IsRounded(result, at[i], value));
    }
  }
}

TEST(ApplyEpilogue, AddsAResidualOfEveryDtypeInItsLayout) {
  const auto check = [](const TensorDescriptor& residual,
                        const TensorDescriptor& result) {
    const Epilogue sum{std::nullopt, StepTensor{residual}};
    const Epilogue whole{std::nullopt, StepTensor{residual}, true, 0.7f};
    for (double unit : {0.375, SmallestSubnormal(residual.dtype)}) {
      CheckEpilogue({sum, result, unit});
      CheckEpilogue({sum, result, unit, false});
      CheckEpilogue({whole, result, unit});
    }
  };
  for (const Dims& dims : kShapes) ForEachPair(dims, check);
}

TEST(ApplyEpilogue, AddsABroadcastBiasThenTheResidual) {
  const Dims dims = {2, 5, 3, 7};
  for (const Dims& bias : {Dims{1, 1, 1, 1}, Dims{1, 5, 1, 1}, Dims{2, 1, 1, 1},
                           Dims{1, 1, 3, 7}, Dims{2, 5, 3, 7}}) {
    SCOPED_TRACE(ToString(bias));
    const StepTensor added = {{DataType::kF32, Layout::kNCX, bias}};
    ForEachPair(dims, [&](const TensorDescriptor& residual,
                          const TensorDescriptor& result) {
      CheckEpilogue({{added, std::nullopt}, result});
      CheckEpilogue({{added, StepTensor{residual}, true}, result});
    });
  }
}

TEST(ApplyEpilogue, OverwritesItsOwnSum) {
  const TensorDescriptor descriptor{DataType::kF32, Layout::kNXC, {2, 5, 3, 7}};
  const Sample sum = MakeSample(descriptor, 0.375, true, 7);
  Sample result = sum;
  ApplyEpilogue(2, {std::nullopt, std::nullopt, false, 0.7f},
                reinterpret_cast<const float*>(result.bytes.data()), nullptr,
                nullptr, descriptor, result.bytes.data());
  for (int64_t i = 0; i < ElementCount(descriptor); ++i) {
    ASSERT_TRUE(IsRounded(result, i, static_cast<float>(sum.Value(i)) * 0.7f));
  }
}

}  // namespace
}  // namespace convgrad::onednn
