#include "backends/core/batch_slices.h"

#include "backends/core/convolution/conv_operation.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

ConvOperation Backward(absl::string_view problem) {
  return WholeOperation(*Parse(problem), Direction::kBackward, DataType::kF32,
                        Layout::kNCX);
}

BatchSlices SlicesOf(const ConvOperation& operation, int64_t items) {
  return BatchSlices(std::make_shared<ConvOperation>(operation), items);
}

ConvOperation SliceOf(const BatchSlices& slices, int64_t slice) {
  return *AsConvolution(*slices.SliceOperation(slice));
}

TEST(BatchSlicesTest, CutsTheBatchAndTheLastSliceIsTheRest) {
  const ConvOperation whole = Backward("conv2d_n7_c2_o3_i5_k3_b");
  const BatchSlices slices = SlicesOf(whole, 3);
  EXPECT_EQ(slices.count(), 3);
  EXPECT_EQ(slices.items(), 3);
  const ConvOperation last = SliceOf(slices, 2);
  EXPECT_EQ(last.problem.batch, 1);
  EXPECT_TRUE(Validate(last).ok()) << Validate(last);
  const auto& input = *whole.operand(Operand::kInput);
  EXPECT_EQ(slices.RangeOf(input, 1).begin, 600);
  EXPECT_EQ(slices.RangeOf(input, 2).begin, 1200);
  EXPECT_EQ(slices.RangeOf(input, 2).end, *ByteSize(input));
}

TEST(BatchSlicesTest, AddendsAreF32OfScaleOneWhateverIsAskedFor) {
  ConvOperation whole = Backward("conv2d_n4_c2_o3_i5_k3_b");
  for (ResultRequest& request : whole.results) {
    request.scale = 0.5f;
    request.descriptor.dtype = DataType::kBF16;
    if (request.which == Result::kGradWeight) {
      request.descriptor.layout = Layout::kXIO;
    }
  }
  const ConvOperation part = SliceOf(SlicesOf(whole, 2), 0);
  for (const ResultRequest& request : part.results) {
    EXPECT_EQ(request.descriptor.dtype, request.which == Result::kGradInput
                                            ? DataType::kBF16
                                            : DataType::kF32);
  }
  EXPECT_EQ(part.result(Result::kGradWeight)->descriptor.layout, Layout::kOIX);
  EXPECT_EQ(part.result(Result::kGradWeight)->scale, 1);
  EXPECT_EQ(part.result(Result::kGradBias)->scale, 1);
  EXPECT_EQ(part.result(Result::kGradInput)->scale, 0.5f);
}

TEST(BatchSlicesTest, ABiasIsCutExactlyWhereItVariesAlongTheBatch) {
  const auto cut = [](absl::string_view problem) {
    const ConvOperation operation = Backward(problem);
    for (size_t i = 0; i < operation.results.size(); ++i) {
      if (operation.results[i].which != Result::kGradBias) continue;
      return operation.ResultUses()[i].has_batch;
    }
    return false;
  };
  EXPECT_FALSE(cut("conv2d_n4_c2_o4_i5_k3_b"));
  EXPECT_FALSE(cut("conv2d_n4_c2_o4_i5_k3_b1x4x1x1"));
  EXPECT_TRUE(cut("conv2d_n4_c2_o4_i5_k3_b4x1x1x1"));
  EXPECT_TRUE(cut("linear_n4_c2_o4_b4x1"));
  EXPECT_FALSE(cut("linear_n4_c2_o4_b4"));
  EXPECT_FALSE(cut("conv2d_n1_c2_o4_i5_k3_b1x4x1x1"));
}

TEST(BatchSlicesTest, AnEmptyBatchIsOneSliceOfNothing) {
  const BatchSlices slices = SlicesOf(Backward("conv2d_n0_c2_o3_i5_k3"), 3);
  EXPECT_EQ(slices.count(), 1);
  EXPECT_EQ(SliceOf(slices, 0).problem.batch, 0);
}

}  // namespace
}  // namespace convgrad
