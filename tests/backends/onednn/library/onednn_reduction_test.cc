// Compares every dtype with plain sums in double, with every instruction set.
#include "backends/onednn/library/onednn_reduction.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "backends/core/logical_tensor.h"
#include "tests/backends/kernels/operators/channel_tensors.h"
#include "tests/backends/kernels/simd_targets.h"
#include "tests/backends/onednn/library/element_samples.h"

namespace convgrad::onednn {
namespace {

struct BiasCase {
  TensorDescriptor grad;
  Dims bias;
  double unit = 0.375;
  bool nonfinite = false;
};

// Returns one sum per element of the bias. Sums are exact, because the addends
// are integers times a unit.
std::vector<double> PlainSums(const Sample& grad, const Dims& bias) {
  int64_t count = 1;
  for (int64_t extent : bias) count *= extent;
  std::vector<double> sums(count);
  const std::vector<int64_t> at = LogicalOffsets(grad.descriptor);
  for (size_t i = 0; i < at.size(); ++i) {
    int64_t rest = static_cast<int64_t>(i), which = 0, step = 1;
    for (size_t axis = bias.size(); axis-- > 0;) {
      const int64_t index = rest % grad.descriptor.dims[axis];
      rest /= grad.descriptor.dims[axis];
      if (bias[axis] > 1) which += index * step;
      step *= bias[axis];
    }
    sums[which] += grad.Value(at[i]);
  }
  return sums;
}

Sample Reduce(const Sample& grad, float scale, const TensorDescriptor& bias,
              RunParts run = InOrder) {
  Sample result(bias);
  const BiasReduction reduction(grad.descriptor, bias.dims);
  std::vector<double> scratch(reduction.scratch_bytes() / sizeof(double), NAN);
  reduction.Run(grad.bytes.data(), scale, bias.dtype, result.bytes.data(),
                scratch.data(), run);
  return result;
}

void Check(const BiasCase& given) {
  const Sample grad = MakeSample(given.grad, given.unit, given.nonfinite, 1);
  const std::vector<double> sums = PlainSums(grad, given.bias);
  for (DataType dtype : kAllDataTypes) {
    for (float scale : {1.0f, 0.7f}) {
      SCOPED_TRACE(absl::StrCat(NameOf(dtype), " times ", scale));
      const TensorDescriptor bias{dtype, Layout::kNCX, given.bias};
      ForEachSimdTarget([&] {
        const Sample result = Reduce(grad, scale, bias);
        for (size_t i = 0; i < sums.size(); ++i) {
          ASSERT_TRUE(IsRounded(
              result, i,
              scale == 1 ? sums[i] : static_cast<float>(sums[i]) * scale));
        }
      });
    }
  }
}

template <typename Body>
void ForEachGradient(const Dims& dims, const Body& body) {
  for (DataType dtype : kAllDataTypes) {
    for (Layout layout : kBothLayouts) {
      const TensorDescriptor grad{dtype, layout, dims};
      SCOPED_TRACE(ToString(grad));
      body(grad);
    }
  }
}

TEST(BiasReduction, SumsEveryDtypeIntoEveryBias) {
  ForEachGradient({2, 5, 3, 7}, [](const TensorDescriptor& grad) {
    for (const Dims& bias :
         {Dims{1, 1, 1, 1}, Dims{1, 5, 1, 1}, Dims{2, 1, 1, 1},
          Dims{1, 1, 3, 7}, Dims{1, 5, 3, 1}, Dims{1, 5, 1, 7},
          Dims{2, 1, 3, 1}, Dims{2, 1, 1, 7}, Dims{2, 5, 3, 7}}) {
      SCOPED_TRACE(ToString(bias));
      Check({grad, bias});
      Check({grad, bias, SmallestSubnormal(grad.dtype)});
      Check({grad, bias, 0.375, true});
    }
  });
}

TEST(BiasReduction, SumsRunsOfAnyLength) {
  for (int64_t length : {1, 7, 8, 9, 31, 32, 33, 41, 1023, 20003}) {
    ForEachGradient({2, 3, length}, [](const TensorDescriptor& grad) {
      Check({grad, {1, 3, 1}});
      Check({grad, {1, 1, grad.dims[2]}});
    });
  }
}

TEST(BiasReduction, SumsAnyNumberOfChannels) {
  for (int64_t channels = 1; channels <= 67; ++channels) {
    ForEachGradient({2, channels, 37}, [&](const TensorDescriptor& grad) {
      Check({grad, {1, channels, 1}});
    });
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(BiasReduction, SumsManyChannels) {
  ForEachGradient({3, 2500, 2}, [](const TensorDescriptor& grad) {
    Check({grad, {1, 2500, 1}});
    Check({grad, {3, 2500, 1}, SmallestSubnormal(grad.dtype)});
  });
}

// The sums depend on the order of rounding, and still are the same for all
// dtypes that can hold the addends.
TEST(BiasReduction, AddsInTheSameOrderInEveryDtype) {
  const Dims dims = {2, 3, 4099}, bias = {1, 3, 1};
  TensorDescriptor narrow{DataType::kBF16, Layout::kNCX, dims};
  Sample grad(narrow);
  for (int64_t i = 0; i < ElementCount(narrow); ++i) {
    StoreRounded(narrow.dtype,
                 i % 3 == 0   ? 0x1p55
                 : i % 3 == 1 ? -0x1p55
                              : 3.0,
                 grad.At(i));
  }
  TensorDescriptor wide = narrow;
  wide.dtype = DataType::kF32;
  Sample same(wide);
  for (int64_t i = 0; i < ElementCount(wide); ++i) {
    StoreRounded(wide.dtype, grad.Value(i), same.At(i));
  }
  const TensorDescriptor result{DataType::kF32, Layout::kNCX, bias};
  ForEachSimdTarget([&] {
    EXPECT_EQ(Reduce(grad, 1, result).bytes, Reduce(same, 1, result).bytes);
  });
}

TEST(BiasReduction, ThreadsDontChangeBits) {
  for (Layout layout : kBothLayouts) {
    const Sample grad =
        MakeSample({DataType::kF32, layout, {3, 5, 4099}}, 0x1p-30, false, 1);
    Sample wide = grad;
    for (int64_t i = 0; i < ElementCount(grad.descriptor); i += 2) {
      StoreRounded(DataType::kF32, i % 4 == 0 ? 0x1p30 : -0x1p30, wide.At(i));
    }
    const TensorDescriptor bias{DataType::kF32, Layout::kNCX, {1, 5, 1}};
    const Sample result = Reduce(wide, 1, bias);
    EXPECT_EQ(result.bytes, Reduce(wide, 1, bias, Backwards).bytes);
    EXPECT_EQ(result.bytes, Reduce(wide, 1, bias, OnThreeThreads).bytes);
  }
}

}  // namespace
}  // namespace convgrad::onednn
