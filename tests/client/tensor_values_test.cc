#include "client/cpp/tensor_values.h"

#include <numeric>

#include "gtest/gtest.h"

namespace convgrad {
namespace {

std::vector<double> Counting(const TensorDescriptor& tensor) {
  std::vector<double> values(ElementCount(tensor));
  std::iota(values.begin(), values.end(), 1);
  return values;
}

TEST(TensorValuesTest, LoadsWhatItStoresInEveryLayout) {
  const Dims dims = {4, 3, 2, 5, 3};
  for (Layout layout : {Layout::kNCX, Layout::kNXC, Layout::kOIX, Layout::kOXI,
                        Layout::kXIO, Layout::kNDC1HWC0, Layout::kFractalZ3D}) {
    const TensorDescriptor tensor{DataType::kF32, layout, dims, 8, 2};
    std::vector<char> data(*ByteSize(tensor), '\xff');
    StoreLogical(tensor, Counting(tensor), data.data());
    EXPECT_EQ(LoadLogical(tensor, data.data()), Counting(tensor))
        << ToString(tensor);
  }
}

TEST(TensorValuesTest, PutsChannelsLastInNxc) {
  const TensorDescriptor tensor{DataType::kF32, Layout::kNXC, {1, 2, 3}, 0, 1};
  float data[6];
  StoreLogical(tensor, {1, 2, 3, 4, 5, 6}, data);
  EXPECT_EQ(std::vector<float>(data, data + 6),
            (std::vector<float>{1, 4, 2, 5, 3, 6}));
}

TEST(TensorValuesTest, WritesPadLanesAsZero) {
  const TensorDescriptor tensor{
      DataType::kF32, Layout::kNDC1HWC0, {1, 3, 1, 1}, 8, 1};
  std::vector<float> data(8, 7.0f);
  StoreLogical(tensor, {1, 2, 3}, data.data());
  EXPECT_EQ(data, (std::vector<float>{1, 2, 3, 0, 0, 0, 0, 0}));
}

TEST(TensorValuesTest, TakesScalarsAndEmptyTensors) {
  const TensorDescriptor scalar{DataType::kF16, Layout::kNCX, {}, 0, 1};
  uint16_t one;
  StoreLogical(scalar, {1}, &one);
  EXPECT_EQ(one, 0x3c00);
  const TensorDescriptor empty{DataType::kF32, Layout::kNXC, {0, 2, 3}, 0, 1};
  StoreLogical(empty, {}, nullptr);
  EXPECT_TRUE(LoadLogical(empty, nullptr).empty());
}

}  // namespace
}  // namespace convgrad
