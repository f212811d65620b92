#include "backends/core/logical_tensor.h"

#include <cmath>
#include <numeric>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

using testing::ElementsAre;

TEST(LogicalTensorTest, OffsetsComeInLogicalOrder) {
  EXPECT_THAT(LogicalOffsets({DataType::kF32, Layout::kNXC, {1, 2, 3}}),
              ElementsAre(0, 2, 4, 1, 3, 5));
  EXPECT_THAT(LogicalOffsets({DataType::kF32, Layout::kNDC1HWC0, {1, 9, 2}, 8}),
              ElementsAre(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15,
                          16, 24));
}

TEST(LogicalTensorTest, ScalarsAndEmptyTensors) {
  EXPECT_THAT(LogicalOffsets({DataType::kF32, Layout::kNCX, {}}),
              ElementsAre(0));
  EXPECT_THAT(LoadLogical({DataType::kF32, Layout::kNCX, {0, 3}}, nullptr),
              ElementsAre());
  StoreLogical({DataType::kF32, Layout::kNDC1HWC0, {0, 3, 2}, 8}, {}, nullptr);
}

TEST(LogicalTensorTest, StoringRoundsAndClearsPadLanes) {
  const TensorDescriptor descriptor = {
      DataType::kBF16, Layout::kFractalZ3D, {2, 1}, 16};
  std::vector<uint16_t> bits(16 * 16, 0xffff);
  StoreLogical(descriptor, {1 + std::ldexp(1, -8), -2}, bits.data());
  EXPECT_EQ(bits[0], 0x3f80);
  EXPECT_EQ(bits[16], 0xc000);
  bits[0] = bits[16] = 0;
  EXPECT_THAT(bits, testing::Each(0));
}

TEST(LogicalTensorTest, LoadsWhatItStoresInEveryLayout) {
  const Dims dims = {4, 3, 2, 5, 3};
  std::vector<double> values(4 * 3 * 2 * 5 * 3);
  std::iota(values.begin(), values.end(), 1);
  for (Layout layout : {Layout::kNCX, Layout::kNXC, Layout::kOIX, Layout::kOXI,
                        Layout::kXIO, Layout::kNDC1HWC0, Layout::kFractalZ3D}) {
    const TensorDescriptor tensor{DataType::kF32, layout, dims, 8, 2};
    std::vector<char> data(*ByteSize(tensor), '\xff');
    StoreLogical(tensor, values, data.data());
    EXPECT_EQ(LoadLogical(tensor, data.data()), values) << ToString(tensor);
  }
}

TEST(LogicalTensorTest, LoadingIgnoresPadLanes) {
  const TensorDescriptor descriptor = {
      DataType::kF32, Layout::kNDC1HWC0, {1, 2, 1}, 8};
  const std::vector<float> data = {3, 4, NAN, NAN, NAN, NAN, NAN, NAN};
  EXPECT_THAT(LoadLogical(descriptor, data.data()), ElementsAre(3, 4));
}

}  // namespace
}  // namespace convgrad
