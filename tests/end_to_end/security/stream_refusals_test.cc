// Tests streams that break the contract: each has one status and the right
// detail, and leaks nothing.
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/peers/raw_stream.h"
#include "tests/end_to_end/peers/test_server.h"

namespace convgrad {
namespace {

using Messages = std::vector<v1::ConvStreamRequest>;

constexpr int64_t kFrameBytes = int64_t{4} << 20;

class StreamRefusalsTest : public testing::Test {
 protected:
  static Config SmallConfig() {
    Config config = TestConfig();
    config.max_macs = 10'000'000;
    return config;
  }

  // Returns the header and the first `frames` valid frames.
  static Messages Good(size_t frames = 7) {
    Messages messages = TestFrames();
    messages.resize(frames);
    messages.insert(messages.begin(), TestHeader());
    return messages;
  }
  static Messages With(Messages messages, v1::ConvStreamRequest last) {
    messages.push_back(std::move(last));
    return messages;
  }

  StreamOutcome ExpectRefused(const Messages& messages, grpc::StatusCode code,
                              absl::string_view reason,
                              absl::string_view field) {
    StreamOutcome outcome = SendAll(server_.stub(), messages);
    const std::string& text = outcome.status.error_message();
    EXPECT_EQ(outcome.status.error_code(), code) << text;
    EXPECT_EQ(outcome.trailers.reason, reason) << text;
    EXPECT_EQ(outcome.trailers.field, field) << text;
    EXPECT_NE(outcome.trailers.found, "") << text;
    EXPECT_NE(outcome.trailers.expected, "") << text;
    EXPECT_FALSE(outcome.ended);
    server_.ExpectNothingHeld();
    ExpectGood(Good());
    return outcome;
  }
  void ExpectInvalid(const Messages& messages, absl::string_view reason,
                     absl::string_view field) {
    ExpectRefused(messages, grpc::StatusCode::INVALID_ARGUMENT, reason, field);
  }
  void ExpectGood(const Messages& messages) {
    const StreamOutcome outcome = SendAll(server_.stub(), messages);
    EXPECT_TRUE(outcome.status.ok()) << outcome.status.error_message();
    EXPECT_TRUE(outcome.ended);
    EXPECT_EQ(outcome.frames, 5);
    server_.ExpectNothingHeld();
  }

  TestServer server_{SmallConfig()};
};

TEST_F(StreamRefusalsTest, TakesFramesInAnyOrderInsideTheTwoOpenSlices) {
  Messages frames = TestFrames();
  // The frames of slices 0 and 1 and of weight are reversed; then the third
  // slice follows.
  std::reverse(frames.begin(), frames.begin() + 5);
  std::swap(frames[5], frames[6]);
  frames.insert(frames.begin(), TestHeader());
  ExpectGood(frames);
  // The bytes of one tensor may be reversed as well.
  frames = Good();
  frames[2] = TestFrame(v1::OPERAND_INPUT, 100, 300);
  frames.insert(frames.begin() + 4, TestFrame(v1::OPERAND_INPUT, 0, 100));
  ExpectGood(frames);
}

TEST_F(StreamRefusalsTest, RefusesTheSameOperationsAsUnaryCallsDo) {
  v1::ConvStreamRequest header = TestHeader();
  header.mutable_header()
      ->mutable_operation()
      ->mutable_operands()
      ->mutable_weight()
      ->set_dims(1, 7);
  v1::ConvBackwardRequest unary;
  *unary.mutable_operation() = header.header().operation();
  grpc::ClientContext context;
  v1::ConvBackwardResponse response;
  const grpc::Status expected =
      server_.stub().ConvBackward(&context, unary, &response);
  const StreamOutcome outcome =
      ExpectRefused({header}, grpc::StatusCode::INVALID_ARGUMENT,
                    "SHAPE_MISMATCH", "operation.operands.weight.dims");
  EXPECT_EQ(outcome.status.error_message(), expected.error_message());
}

TEST_F(StreamRefusalsTest, RefusesMessagesOutOfPlace) {
  ExpectInvalid({}, "MISSING", "header");
  ExpectInvalid({TestFrames()[0]}, "MALFORMED", "part");
  ExpectInvalid({v1::ConvStreamRequest()}, "MALFORMED", "part");
  ExpectInvalid(With(Good(1), TestHeader()), "MALFORMED", "part");
  v1::ConvStreamRequest laden = TestHeader();
  laden.add_payloads("x");
  ExpectInvalid({laden}, "MALFORMED", "payloads");
}

TEST_F(StreamRefusalsTest, RefusesFramesThatAreNotOfTheOperation) {
  ExpectInvalid(With(Good(0), TestFrame(v1::OPERAND_BIAS, 0, 4)),
                "OUT_OF_RANGE", "frame.which");
  ExpectInvalid(With(Good(0), TestFrame(v1::OPERAND_UNSPECIFIED, 0, 4)),
                "OUT_OF_RANGE", "frame.which");
  ExpectInvalid(With(Good(0), TestFrame(static_cast<v1::Operand>(77), 0, 4)),
                "INVALID_ENUM", "frame.which");
  ExpectInvalid(With(Good(0), TestFrame(v1::OPERAND_WEIGHT, 200, 17)),
                "OUT_OF_RANGE", "frame.byte_offset");
  ExpectInvalid(With(Good(0), TestFrame(v1::OPERAND_WEIGHT, -1, 4)),
                "OUT_OF_RANGE", "frame.byte_offset");
}

TEST_F(StreamRefusalsTest, RefusesFramesOfTheWrongSize) {
  ExpectInvalid(With(Good(0), TestFrame(v1::OPERAND_INPUT, 0, 0)),
                "BYTE_COUNT_MISMATCH", "payloads[0]");
  ExpectInvalid(With(Good(0), TestFrame(v1::OPERAND_INPUT, 0, kFrameBytes + 1)),
                "BYTE_COUNT_MISMATCH", "payloads[0]");
  v1::ConvStreamRequest two = TestFrame(v1::OPERAND_INPUT, 0, 4);
  two.add_payloads("abcd");
  ExpectInvalid(With(Good(0), two), "MALFORMED", "payloads");
}

TEST_F(StreamRefusalsTest, RefusesBytesThatCameBefore) {
  ExpectInvalid(With(Good(1), TestFrame(v1::OPERAND_WEIGHT, 0, 216)),
                "DUPLICATE", "frame.byte_offset");
  ExpectInvalid(With(Good(2), TestFrame(v1::OPERAND_INPUT, 300, 100)),
                "DUPLICATE", "frame.byte_offset");
  // The frame is of a complete slice, and one comes after all frames.
  ExpectInvalid(With(Good(3), TestFrame(v1::OPERAND_INPUT, 0, 4)), "DUPLICATE",
                "frame.byte_offset");
  ExpectInvalid(With(Good(), TestFrame(v1::OPERAND_INPUT, 0, 4)), "DUPLICATE",
                "frame.byte_offset");
}

TEST_F(StreamRefusalsTest, RefusesFramesOutsideTheOpenSlices) {
  ExpectInvalid(With(Good(1), TestFrame(v1::OPERAND_INPUT, 800, 400)),
                "OUT_OF_RANGE", "frame.byte_offset");
  ExpectInvalid(With(Good(1), TestFrame(v1::OPERAND_INPUT, 300, 200)),
                "OUT_OF_RANGE", "frame.byte_offset");
}

TEST_F(StreamRefusalsTest, RefusesTheThirdSliceBeforeTheWeight) {
  Messages messages = Good();
  messages.erase(messages.begin() + 1);
  ExpectInvalid(messages, "MISSING", "operands.weight");
}

TEST_F(StreamRefusalsTest, NamesTheGapsAtTheEnd) {
  ExpectInvalid(Good(0), "MISSING", "frames");
  const StreamOutcome outcome = ExpectRefused(
      Good(6), grpc::StatusCode::INVALID_ARGUMENT, "MISSING", "frames");
  EXPECT_TRUE(absl::StrContains(outcome.trailers.found,
                                "0 bytes of slice 2 of grad_output"))
      << outcome.trailers.found;
  EXPECT_TRUE(absl::StrContains(outcome.trailers.expected, "216 bytes"))
      << outcome.trailers.expected;
}

TEST_F(StreamRefusalsTest, RefusesCrumbs) {
  Messages messages = Good(1);
  messages[0]
      .mutable_header()
      ->mutable_operation()
      ->mutable_problem()
      ->set_input_dims(0, 60);
  v1::Operands* operands =
      messages[0].mutable_header()->mutable_operation()->mutable_operands();
  operands->mutable_input()->set_dims(0, 60);
  operands->mutable_grad_output()->set_dims(0, 60);
  messages[0].mutable_header()->set_slice_items(60);
  for (int64_t at = 0; at < 4000; at += 2) {
    messages.push_back(TestFrame(v1::OPERAND_INPUT, at, 1));
  }
  ExpectInvalid(messages, "LIMIT_EXCEEDED", "frame.byte_offset");
}

TEST_F(StreamRefusalsTest, RefusesWhatAStreamCantDo) {
  Messages messages = Good();
  messages[0].mutable_header()->mutable_options()->set_self_check(true);
  ExpectRefused(messages, grpc::StatusCode::UNIMPLEMENTED, "UNSUPPORTED",
                "options.self_check");
  messages = Good();
  v1::Tensor::Region* region = messages[0]
                                   .mutable_header()
                                   ->mutable_operation()
                                   ->mutable_operands()
                                   ->mutable_input()
                                   ->mutable_region();
  region->set_region_id(std::string(16, 'r'));
  region->set_byte_length(1200);
  ExpectRefused(messages, grpc::StatusCode::UNIMPLEMENTED, "UNSUPPORTED",
                "operation.operands.input.region");
  messages = Good();
  messages[0].mutable_header()->set_slice_items(-1);
  ExpectInvalid(messages, "OUT_OF_RANGE", "slice_items");
  messages = Good();
  messages[0]
      .GetReflection()
      ->MutableUnknownFields(&messages[0])
      ->AddVarint(77, 1);
  ExpectRefused(messages, grpc::StatusCode::UNIMPLEMENTED, "UNKNOWN_FIELD",
                "request");
}

TEST_F(StreamRefusalsTest, TellsSourcesOfStreamsAndOfMessagesApart) {
  Messages messages = Good();
  messages[0]
      .mutable_header()
      ->mutable_operation()
      ->mutable_operands()
      ->mutable_input()
      ->mutable_inline_();
  ExpectInvalid(messages, "MALFORMED", "operation.operands.input.source");
  v1::ConvBackwardRequest unary = SeedBackward();
  unary.mutable_operation()
      ->mutable_operands()
      ->mutable_input()
      ->mutable_stream();
  const RawReply reply =
      CallRaw(server_.channel(), "ConvBackward", unary.SerializeAsString());
  EXPECT_EQ(reply.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(reply.trailers.field, "operation.operands.input.source");
}

TEST_F(StreamRefusalsTest, CountsTheWorkOfTheWholeOperation) {
  Messages messages = Good(0);
  v1::ConvOperation* operation =
      messages[0].mutable_header()->mutable_operation();
  // Each item takes 2 * 486 multiply-adds, so each slice is far within the
  // limit.
  const int64_t batch = 20'000;
  operation->mutable_problem()->set_input_dims(0, batch);
  operation->mutable_operands()->mutable_input()->set_dims(0, batch);
  operation->mutable_operands()->mutable_grad_output()->set_dims(0, batch);
  ExpectRefused(messages, grpc::StatusCode::RESOURCE_EXHAUSTED,
                "LIMIT_EXCEEDED", "operation.problem");
}

TEST_F(StreamRefusalsTest, RefusesASliceBeyondTheBudgetNamingBoth) {
  Messages messages = Good(0);
  v1::ConvOperation* operation =
      messages[0].mutable_header()->mutable_operation();
  const int64_t batch = 1'000'000;
  operation->mutable_problem()->set_input_dims(0, batch);
  operation->mutable_operands()->mutable_input()->set_dims(0, batch);
  operation->mutable_operands()->mutable_grad_output()->set_dims(0, batch);
  // A sum over the batch alone takes no multiply-adds.
  operation->mutable_results()->DeleteSubrange(0, 2);
  messages[0].mutable_header()->set_slice_items(batch);
  const StreamOutcome outcome =
      ExpectRefused(messages, grpc::StatusCode::RESOURCE_EXHAUSTED,
                    "LIMIT_EXCEEDED", "slice_items");
  EXPECT_TRUE(absl::StrContains(outcome.trailers.found, "1000000 items"));
  const int64_t capacity =
      server_.server().gauges().SumOf("convgrad_memory_capacity_bytes");
  EXPECT_TRUE(
      absl::StrContains(outcome.trailers.expected, absl::StrCat(capacity)));
}

}  // namespace
}  // namespace convgrad
