#include "proto/stream_slices.h"

#include "backends/core/convolution/conv_operation.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

std::shared_ptr<const Operation> Backward(absl::string_view problem) {
  return std::make_shared<const ConvOperation>(WholeOperation(
      *Parse(problem), Direction::kBackward, DataType::kF32, Layout::kNCX));
}

TEST(StreamSlicesTest, ZeroItemsAreSixteenMebibytesOrTheSums) {
  // An item has 3 * 64 * 56 * 56 * 4 bytes.
  EXPECT_EQ(StreamSlices(Backward("conv2d_n64_c64_o64_i56_k3_p1"), 0).items(),
            (16 << 20) / (3 * 64 * 56 * 56 * 4));
  // An item has 3 * 2048 * 4 bytes, and grad_weight 2048 * 2048 * 4: the same.
  EXPECT_EQ(StreamSlices(Backward("linear_n9999_c2048_o2048"), 0).items(),
            (16 << 20) / (3 * 2048 * 4));
  // grad_weight is four times as large.
  EXPECT_EQ(StreamSlices(Backward("linear_n99999_c4096_o4096"), 0).items(),
            (64 << 20) / (3 * 4096 * 4));
  // A slice has at least one item, and at most the batch.
  EXPECT_EQ(StreamSlices(Backward("conv2d_n9_c64_o64_i999_k3"), 0).items(), 1);
  EXPECT_EQ(StreamSlices(Backward("conv2d_n9_c2_o2_i9_k3"), 0).items(), 9);
}

}  // namespace
}  // namespace convgrad
