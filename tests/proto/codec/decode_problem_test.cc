#include <limits>

#include "proto/codec/codec.h"
#include "tests/proto/random_operation.h"
#include "tests/proto/status_matchers.h"

namespace convgrad {
namespace {

constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();

class DecodeProblemTest : public ::testing::Test {
 protected:
  absl::StatusOr<DecodedOperation> Decode() const {
    return DecodeOperation(message_, Direction::kBackward,
                           PayloadBytes(operation_));
  }
  void ExpectRefused(Reason reason, const std::string& field) const {
    ExpectInvalid(Decode().status(), reason, field);
  }

  ConvOperation operation_ = SmallBackward();
  v1::ConvOperation message_ = EncodeOperation(operation_);
  v1::ConvProblem* problem_ = message_.mutable_problem();
};

TEST_F(DecodeProblemTest, ReadsEmptyAsDefaultAndOneEntryForAllAxes) {
  problem_->clear_stride();
  problem_->clear_dilation();
  problem_->clear_output_dims();
  problem_->clear_groups();
  for (auto* list : {problem_->mutable_kernel(), problem_->mutable_pad_begin(),
                     problem_->mutable_pad_end()}) {
    list->Truncate(1);
  }
  ASSERT_TRUE(Decode().ok()) << Decode().status();
  EXPECT_EQ(Decode()->operation.problem, operation_.problem);
}

TEST_F(DecodeProblemTest, RefusesListsOfAnotherLengthNamingBothCounts) {
  problem_->add_stride(1);
  ExpectRefused(Reason::kShapeMismatch, "operation.problem.stride");
  const auto detail = DetailOf(Decode().status());
  EXPECT_EQ(detail->found, "3 entries");
  EXPECT_EQ(detail->expected, "none, 1 or 2, one per spatial axis");
}

TEST_F(DecodeProblemTest, RefusesListsThatLeaveOutAnAxis) {
  problem_->add_input_dims(5);
  for (auto* list :
       {problem_->mutable_kernel(), problem_->mutable_dilation(),
        problem_->mutable_pad_begin(), problem_->mutable_pad_end()}) {
    list->Add(1);
  }
  problem_->clear_output_dims();
  ExpectRefused(Reason::kShapeMismatch, "operation.problem.stride");
}

TEST_F(DecodeProblemTest, RequiresTheKernel) {
  problem_->clear_kernel();
  ExpectRefused(Reason::kMissing, "operation.problem.kernel");
}

TEST_F(DecodeProblemTest, RefusesSpatialListsWithoutSpatialAxes) {
  problem_->mutable_input_dims()->Truncate(2);
  ExpectRefused(Reason::kShapeMismatch, "operation.problem.kernel");
}

TEST_F(DecodeProblemTest, RefusesPadsBesideNamedPadding) {
  problem_->set_padding(v1::PADDING_SAME_UPPER);
  ExpectRefused(Reason::kShapeMismatch, "operation.problem.pad_begin");
  problem_->clear_pad_begin();
  ExpectRefused(Reason::kShapeMismatch, "operation.problem.pad_end");
  problem_->clear_pad_end();
  ASSERT_TRUE(Decode().ok()) << Decode().status();
  EXPECT_EQ(Decode()->operation.problem, operation_.problem);
}

TEST_F(DecodeProblemTest, ReadsGroupsOfZeroAsGiven) {
  problem_->set_groups(0);
  ExpectRefused(Reason::kOutOfRange, "operation.problem.groups");
}

TEST_F(DecodeProblemTest, RefusesTooFewAndTooManyDims) {
  problem_->mutable_input_dims()->Truncate(1);
  ExpectRefused(Reason::kShapeMismatch, "operation.problem.input_dims");
  for (int i = 0; i < 5000; ++i) problem_->add_input_dims(1);
  ExpectRefused(Reason::kShapeMismatch, "operation.problem.input_dims");
}

TEST_F(DecodeProblemTest, NamesTheEntryOutOfRange) {
  problem_->set_stride(0, 0);
  ExpectRefused(Reason::kOutOfRange, "operation.problem.stride[0]");
  problem_->set_stride(0, 1);
  problem_->set_pad_end(1, -1);
  ExpectRefused(Reason::kOutOfRange, "operation.problem.pad_end[1]");
  problem_->set_pad_end(1, 1);
  problem_->set_output_dims(1, 4);
  ExpectRefused(Reason::kShapeMismatch, "operation.problem.output_dims[1]");
}

// Every number of a problem is set to its extremes, for convolutions and
// transposed ones, with every padding. The decoder returns a status and never
// traps.
TEST_F(DecodeProblemTest, SurvivesExtremesEverywhere) {
  const v1::ConvProblem valid = *problem_;
  const int64_t extremes[] = {kLargest, -kLargest - 1, -1,
                              0,        kLargest / 2,  int64_t{1} << 31};
  for (bool transposed : {false, true}) {
    for (int padding = 0; padding <= 4; ++padding) {
      for (int64_t extreme : extremes) {
        for (int field = 0; field < 10; ++field) {
          *problem_ = valid;
          problem_->set_transposed(transposed);
          problem_->set_padding(static_cast<v1::Padding>(padding));
          if (padding > 1) problem_->clear_pad_begin();
          if (padding > 1) problem_->clear_pad_end();
          google::protobuf::RepeatedField<int64_t>* lists[] = {
              problem_->mutable_input_dims(), problem_->mutable_kernel(),
              problem_->mutable_stride(),     problem_->mutable_dilation(),
              problem_->mutable_pad_begin(),  problem_->mutable_pad_end(),
              problem_->mutable_output_dims()};
          if (field < 7 && !lists[field]->empty()) {
            lists[field]->Set(lists[field]->size() - 1, extreme);
          }
          if (field == 7) problem_->set_groups(extreme);
          if (field == 8) problem_->set_out_channels(extreme);
          if (field == 9) problem_->add_output_padding(extreme);
          (void)Decode();
        }
      }
    }
  }
}

TEST_F(DecodeProblemTest, RefusesOutputPaddingThatOverflowsWhenDerived) {
  problem_->set_transposed(true);
  problem_->set_pad_begin(0, kLargest / 2);
  problem_->set_output_dims(0, kLargest);
  EXPECT_EQ(Decode().status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(DecodeProblemTest, RefusesSizesBeyond63Bits) {
  problem_->set_input_dims(0, int64_t{1} << 31);
  problem_->set_input_dims(1, int64_t{1} << 31);
  ExpectRefused(Reason::kOverflow, "operation.problem.input_dims");
}

}  // namespace
}  // namespace convgrad
