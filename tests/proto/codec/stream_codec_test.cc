// Tests the valid and invalid messages of a stream.
#include "proto/codec/stream_codec.h"

#include <limits>
#include <string>
#include <vector>

#include "tests/proto/random_operation.h"
#include "tests/proto/status_matchers.h"

namespace convgrad {
namespace {

class DecodeOpeningTest : public testing::Test {
 protected:
  absl::StatusOr<StreamOpening> Decode(
      const std::vector<int64_t>& payload_bytes = {}) const {
    return DecodeOpening(message_, Direction::kBackward, payload_bytes);
  }

  v1::ConvStreamRequest message_ = EncodeOpening(SmallBackward(), {}, 3);
};

TEST_F(DecodeOpeningTest, ReadsWhatWasEncoded) {
  const auto opening = Decode();
  ASSERT_TRUE(opening.ok()) << opening.status();
  EXPECT_EQ(opening->decoded.operation.problem, SmallBackward().problem);
  EXPECT_EQ(opening->slice_items, 3);
  EXPECT_TRUE(opening->decoded.support.ok()) << opening->decoded.support;
}

TEST_F(DecodeOpeningTest, RefusesWhatIsNoOpening) {
  ExpectInvalid(Decode({4}).status(), Reason::kMalformed, "payloads");
  message_.mutable_header()->set_slice_items(-1);
  ExpectInvalid(Decode().status(), Reason::kOutOfRange, "slice_items");
  message_ = EncodeFrame(Operand::kWeight, 0);
  ExpectInvalid(Decode().status(), Reason::kMalformed, "part");
  message_.Clear();
  ExpectInvalid(Decode().status(), Reason::kMalformed, "part");
}

TEST_F(DecodeOpeningTest, AStreamIsNotSelfChecked) {
  message_.mutable_header()->mutable_options()->set_self_check(true);
  const auto opening = Decode();
  ASSERT_TRUE(opening.ok()) << opening.status();
  ExpectError(opening->decoded.support, absl::StatusCode::kUnimplemented,
              Reason::kUnsupported, "options.self_check");
}

class DecodeFrameTest : public testing::Test {
 protected:
  absl::StatusOr<OperandPiece> Decode(int64_t byte_offset,
                                      const std::vector<int64_t>& payload_bytes,
                                      Operand which = Operand::kWeight) const {
    return DecodeFrame(EncodeFrame(which, byte_offset), operation_,
                       payload_bytes);
  }

  ConvOperation operation_ = SmallBackward();
  const int64_t all_ = *ByteSize(*operation_.operand(Operand::kWeight));
};

TEST_F(DecodeFrameTest, ReadsTheBytesOfAnOperand) {
  const auto piece = Decode(4, {all_ - 4});
  ASSERT_TRUE(piece.ok()) << piece.status();
  EXPECT_EQ(piece->which, Operand::kWeight);
  EXPECT_EQ(piece->bytes.begin, 4);
  EXPECT_EQ(piece->bytes.end, all_);
}

TEST_F(DecodeFrameTest, RefusesBytesOutsideTheOperand) {
  constexpr int64_t kFurthest = std::numeric_limits<int64_t>::max();
  for (const int64_t offset : {int64_t{-1}, int64_t{5}, all_, kFurthest}) {
    ExpectInvalid(Decode(offset, {all_ - 4}).status(), Reason::kOutOfRange,
                  "frame.byte_offset");
  }
  ExpectInvalid(Decode(0, {all_ + 1}).status(), Reason::kOutOfRange,
                "frame.byte_offset");
}

TEST_F(DecodeFrameTest, HasOnePayloadOfLimitedSize) {
  ExpectInvalid(Decode(0, {}).status(), Reason::kMalformed, "payloads");
  ExpectInvalid(Decode(0, {1, 1}).status(), Reason::kMalformed, "payloads");
  ExpectInvalid(Decode(0, {0}).status(), Reason::kByteCountMismatch,
                "payloads[0]");
  ExpectInvalid(Decode(0, {kMaxFrameBytes + 1}).status(),
                Reason::kByteCountMismatch, "payloads[0]");
}

TEST_F(DecodeFrameTest, RefusesWhatTheOperationDoesNotNeed) {
  operation_.operand(Operand::kBias).reset();
  ExpectInvalid(Decode(0, {4}, Operand::kBias).status(), Reason::kOutOfRange,
                "frame.which");
  v1::ConvStreamRequest unset;
  unset.mutable_frame()->set_byte_offset(0);
  ExpectInvalid(DecodeFrame(unset, operation_, {{4}}).status(),
                Reason::kOutOfRange, "frame.which");
  ExpectInvalid(
      DecodeFrame(EncodeOpening(operation_, {}, 0), operation_, {{4}}).status(),
      Reason::kMalformed, "part");
}

}  // namespace
}  // namespace convgrad
