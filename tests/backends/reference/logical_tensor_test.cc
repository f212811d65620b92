#include "backends/reference/logical_tensor.h"

#include <cmath>
#include <cstring>

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

TEST(LogicalTensorTest, LoadingIgnoresPadLanes) {
  const TensorDescriptor descriptor = {
      DataType::kF32, Layout::kNDC1HWC0, {1, 2, 1}, 8};
  const std::vector<float> data = {3, 4, NAN, NAN, NAN, NAN, NAN, NAN};
  EXPECT_THAT(LoadLogical(descriptor, data.data()), ElementsAre(3, 4));
}

}  // namespace
}  // namespace convgrad
