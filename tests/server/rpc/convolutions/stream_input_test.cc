#include "server/rpc/convolutions/stream_input.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "backends/core/status.h"
#include "gtest/gtest.h"
#include "proto/stream_slices.h"

namespace convgrad {
namespace {

// Slices have 2 items: 400 bytes of input and 216 of grad_output. The last
// slice has half of that. The weight's 216 bytes belong to no slice.
constexpr int64_t kInput = 400;
constexpr int64_t kGradOutput = 216;
constexpr int64_t kWeight = 216;

class StreamInputTest : public testing::Test {
 protected:
  static BatchSlices SlicesOf(absl::string_view problem) {
    auto operation = std::make_shared<ConvOperation>(WholeOperation(
        *Parse(problem), Direction::kBackward, DataType::kF32, Layout::kNCX));
    DropUnneeded(operation.get());
    return StreamSlices(std::move(operation), 2);
  }

  // Returns the slice of the frame; nullopt if it is refused.
  std::optional<int64_t> Take(Operand which, int64_t begin, int64_t end) {
    const absl::StatusOr<int64_t> slice = input_.Accept({which, {begin, end}});
    return slice.ok() ? std::optional<int64_t>(*slice) : std::nullopt;
  }
  void TakeWeight() {
    EXPECT_EQ(Take(Operand::kWeight, 0, kWeight), StreamInput::kNoSlice);
  }
  void TakeSlice(int64_t slice, int64_t share = 1) {
    EXPECT_EQ(
        Take(Operand::kInput, slice * kInput, slice * kInput + kInput / share),
        slice);
    EXPECT_EQ(Take(Operand::kGradOutput, slice * kGradOutput,
                   slice * kGradOutput + kGradOutput / share),
              slice);
  }
  void ExpectRefused(const OperandPiece& piece, Reason reason,
                     absl::string_view field, absl::string_view found) {
    const absl::StatusOr<int64_t> slice = input_.Accept(piece);
    ASSERT_FALSE(slice.ok());
    EXPECT_EQ(slice.status().code(), absl::StatusCode::kInvalidArgument);
    const std::optional<ErrorDetail> detail = DetailOf(slice.status());
    ASSERT_TRUE(detail.has_value());
    EXPECT_EQ(detail->reason, reason);
    EXPECT_EQ(detail->field, field);
    EXPECT_EQ(detail->found, found);
  }
  std::string GapAtTheEnd() const {
    const std::optional<ErrorDetail> detail = DetailOf(input_.CheckComplete());
    if (!detail) return "";
    EXPECT_EQ(detail->reason, Reason::kMissing);
    EXPECT_EQ(detail->field, "frames");
    return detail->found + ", " + detail->expected;
  }

  const BatchSlices slices_ = SlicesOf("conv2d_n7_c2_o3_i5_k3");
  StreamInput input_{slices_};
};

TEST_F(StreamInputTest, CompletesSlicesInOrder) {
  EXPECT_EQ(slices_.count(), 4);
  EXPECT_EQ(input_.first_incomplete(), 0);
  TakeWeight();
  EXPECT_TRUE(input_.whole_operands_complete());
  for (int64_t slice = 0; slice < 3; ++slice) {
    TakeSlice(slice);
    EXPECT_EQ(input_.first_incomplete(), slice + 1);
  }
  TakeSlice(3, 2);
  EXPECT_EQ(input_.first_incomplete(), 4);
  EXPECT_TRUE(input_.CheckComplete().ok()) << input_.CheckComplete();
}

TEST_F(StreamInputTest, TakesFramesInAnyOrderInsideTheTwoOpenSlices) {
  EXPECT_EQ(Take(Operand::kGradOutput, 216, 432), 1);
  EXPECT_EQ(Take(Operand::kInput, 600, 800), 1);
  EXPECT_EQ(Take(Operand::kInput, 100, 400), 0);
  EXPECT_EQ(Take(Operand::kWeight, 100, 216), StreamInput::kNoSlice);
  EXPECT_EQ(Take(Operand::kInput, 400, 600), 1);
  // The second slice is complete before the first.
  EXPECT_EQ(input_.first_incomplete(), 0);
  EXPECT_EQ(Take(Operand::kGradOutput, 0, 216), 0);
  EXPECT_EQ(Take(Operand::kInput, 0, 100), 0);
  EXPECT_EQ(input_.first_incomplete(), 2);
  EXPECT_FALSE(input_.whole_operands_complete());
  EXPECT_EQ(Take(Operand::kWeight, 0, 100), StreamInput::kNoSlice);
  EXPECT_TRUE(input_.whole_operands_complete());
}

TEST_F(StreamInputTest, RefusesBytesThatCameBefore) {
  TakeWeight();
  EXPECT_EQ(Take(Operand::kInput, 0, 300), 0);
  EXPECT_EQ(Take(Operand::kInput, 299, 400), std::nullopt);
  EXPECT_EQ(Take(Operand::kWeight, 0, 4), std::nullopt);
  // Refused bytes haven't come.
  EXPECT_EQ(Take(Operand::kInput, 300, 400), 0);
}

TEST_F(StreamInputTest, RefusesSlicesThatAreComplete) {
  TakeWeight();
  TakeSlice(0);
  ExpectRefused({Operand::kInput, {0, 4}}, Reason::kDuplicate,
                "frame.byte_offset", "slice 0 of input, which came before");
  TakeSlice(1);
  TakeSlice(2);
  TakeSlice(3, 2);
  ExpectRefused({Operand::kGradOutput, {648, 652}}, Reason::kDuplicate,
                "frame.byte_offset",
                "slice 3 of grad_output, which came before");
}

TEST_F(StreamInputTest, RefusesSlicesBeyondTheTwoOpenOnes) {
  TakeWeight();
  ExpectRefused({Operand::kInput, {800, 900}}, Reason::kOutOfRange,
                "frame.byte_offset", "slice 2 of input");
  TakeSlice(0);
  EXPECT_EQ(Take(Operand::kInput, 800, 900), 2);
  ExpectRefused({Operand::kInput, {1200, 1204}}, Reason::kOutOfRange,
                "frame.byte_offset", "slice 3 of input");
}

TEST_F(StreamInputTest, RefusesFramesThatCrossTheEndOfTheirSlice) {
  ExpectRefused({Operand::kInput, {396, 404}}, Reason::kOutOfRange,
                "frame.byte_offset", "bytes 396 to 404 of input");
  EXPECT_EQ(Take(Operand::kInput, 396, 400), 0);
  EXPECT_EQ(Take(Operand::kInput, 400, 404), 1);
}

TEST_F(StreamInputTest, RefusesTheThirdSliceBeforeWhatIsNotCut) {
  EXPECT_EQ(Take(Operand::kWeight, 0, kWeight - 4), StreamInput::kNoSlice);
  TakeSlice(0);
  TakeSlice(1);
  EXPECT_EQ(input_.first_incomplete(), 2);
  ExpectRefused({Operand::kInput, {800, 900}}, Reason::kMissing,
                "operands.weight", "slice 2 of input before all of it");
  EXPECT_EQ(Take(Operand::kWeight, kWeight - 4, kWeight),
            StreamInput::kNoSlice);
  EXPECT_EQ(Take(Operand::kInput, 800, 900), 2);
}

TEST_F(StreamInputTest, NamesTheFirstGapAtTheEnd) {
  TakeSlice(0);
  EXPECT_EQ(GapAtTheEnd(),
            "0 bytes of weight at the end of the stream, "
            "216 bytes, 0 to 216 of the tensor");
  TakeWeight();
  EXPECT_EQ(Take(Operand::kInput, 400, 800), 1);
  EXPECT_EQ(Take(Operand::kGradOutput, 300, 310), 1);
  EXPECT_EQ(GapAtTheEnd(),
            "10 bytes of slice 1 of grad_output at the end of the stream, "
            "216 bytes, 216 to 432 of the tensor");
}

TEST_F(StreamInputTest, AnEmptyBatchLacksOnlyWhatIsNotCut) {
  const BatchSlices slices = SlicesOf("conv2d_n0_c2_o3_i5_k3");
  StreamInput input(slices);
  EXPECT_EQ(input.first_incomplete(), 1);
  EXPECT_FALSE(input.whole_operands_complete());
  EXPECT_TRUE(input.Accept({Operand::kWeight, {0, kWeight}}).ok());
  EXPECT_TRUE(input.CheckComplete().ok());
}

}  // namespace
}  // namespace convgrad
