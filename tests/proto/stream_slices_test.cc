#include "proto/stream_slices.h"

#include "gtest/gtest.h"

namespace convgrad {
namespace {

ConvOperation Backward(absl::string_view problem) {
  return WholeOperation(*Parse(problem), Direction::kBackward, DataType::kF32,
                        Layout::kNCX);
}

TEST(StreamSlicesTest, CutsTheBatchAndTheLastSliceIsTheRest) {
  const StreamSlices slices(Backward("conv2d_n7_c2_o3_i5_k3_b"), 3);
  EXPECT_EQ(slices.count(), 3);
  EXPECT_EQ(slices.items(), 3);
  const ConvOperation last = slices.SliceOperation(2);
  EXPECT_EQ(last.problem.batch, 1);
  EXPECT_TRUE(Validate(last).ok()) << Validate(last);
  const auto& input = *slices.operation().operand(Operand::kInput);
  EXPECT_EQ(slices.RangeOf(input, 1).begin, 600);
  EXPECT_EQ(slices.RangeOf(input, 2).begin, 1200);
  EXPECT_EQ(slices.RangeOf(input, 2).end, *ByteSize(input));
}

TEST(StreamSlicesTest, AddendsAreF32OfScaleOneWhateverIsAskedFor) {
  ConvOperation whole = Backward("conv2d_n4_c2_o3_i5_k3_b");
  for (ResultRequest& request : whole.results) request.scale = 0.5f;
  for (auto& request : whole.results) {
    if (request.which == Result::kGradWeight) {
      request.descriptor.layout = Layout::kXIO;
    }
  }
  const ConvOperation part = StreamSlices(whole, 2).SliceOperation(0);
  EXPECT_EQ(part.result(Result::kGradWeight)->descriptor.layout, Layout::kOIX);
  EXPECT_EQ(part.result(Result::kGradWeight)->scale, 1);
  EXPECT_EQ(part.result(Result::kGradBias)->scale, 1);
  EXPECT_EQ(part.result(Result::kGradInput)->scale, 0.5f);
}

TEST(StreamSlicesTest, ABiasIsCutExactlyWhereItVariesAlongTheBatch) {
  const auto cut = [](absl::string_view problem) {
    return StreamSlices(Backward(problem), 2).IsCut(Result::kGradBias);
  };
  EXPECT_FALSE(cut("conv2d_n4_c2_o4_i5_k3_b"));
  EXPECT_FALSE(cut("conv2d_n4_c2_o4_i5_k3_b1x4x1x1"));
  EXPECT_TRUE(cut("conv2d_n4_c2_o4_i5_k3_b4x1x1x1"));
  EXPECT_TRUE(cut("linear_n4_c2_o4_b4x1"));
  EXPECT_FALSE(cut("linear_n4_c2_o4_b4"));
  EXPECT_FALSE(cut("conv2d_n1_c2_o4_i5_k3_b1x4x1x1"));
}

TEST(StreamSlicesTest, AnEmptyBatchIsOneSliceOfNothing) {
  const StreamSlices slices(Backward("conv2d_n0_c2_o3_i5_k3"), 3);
  EXPECT_EQ(slices.count(), 1);
  EXPECT_EQ(slices.SliceOperation(0).problem.batch, 0);
}

TEST(StreamSlicesTest, ZeroItemsAreSixteenMebibytesOrTheSums) {
  // 3 * 64 * 56 * 56 * 4 bytes an item.
  EXPECT_EQ(StreamSlices(Backward("conv2d_n64_c64_o64_i56_k3_p1"), 0).items(),
            (16 << 20) / (3 * 64 * 56 * 56 * 4));
  // 3 * 2048 * 4 bytes an item, 2048 * 2048 * 4 of grad_weight: the same.
  EXPECT_EQ(StreamSlices(Backward("linear_n9999_c2048_o2048"), 0).items(),
            (16 << 20) / (3 * 2048 * 4));
  // Four times as much.
  EXPECT_EQ(StreamSlices(Backward("linear_n99999_c4096_o4096"), 0).items(),
            (64 << 20) / (3 * 4096 * 4));
  // An item is the least, and the batch the most.
  EXPECT_EQ(StreamSlices(Backward("conv2d_n9_c64_o64_i999_k3"), 0).items(), 1);
  EXPECT_EQ(StreamSlices(Backward("conv2d_n9_c2_o2_i9_k3"), 0).items(), 9);
}

}  // namespace
}  // namespace convgrad
