// Tests streams whose operands and results the session keeps.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/end_to_end/peers/raw_stream.h"
#include "tests/end_to_end/peers/test_server.h"
#include "tests/end_to_end/sessions/session_client.h"

namespace convgrad {
namespace {

// The outcome of a stream.
struct Outcome {
  grpc::Status status;
  Trailers trailers;
  int64_t number = -1;
  std::map<int, std::string> results;  // From frames, by Result.
  v1::StreamEnd end;
};

class SessionStreamTest : public ::testing::Test {
 protected:
  SessionStreamTest() {
    const v1::ConvStreamRequest header = TestHeader();
    const v1::Operands& operands = header.header().operation().operands();
    Put('x', operands.input());
    Put('w', operands.weight());
    Put('g', operands.grad_output());
  }

  void Put(char name, const v1::Tensor& tensor) {
    int64_t count = 1;
    for (int64_t extent : tensor.dims()) count *= extent;
    std::vector<float> values(count);
    for (float& value : values) {
      value = static_cast<float>(++seed_ * 7 % 11 - 5);
    }
    bytes_[name] = BytesOf(values);
    EXPECT_TRUE(
        client_.Put(std::string(1, name), tensor, bytes_[name]).status.ok());
  }

  // Sends a frame of an operand.
  template <typename Stream>
  void Send(Stream* stream, char name, v1::Operand which, int64_t offset,
            int64_t bytes) {
    v1::ConvStreamRequest frame;
    frame.mutable_frame()->set_which(which);
    frame.mutable_frame()->set_byte_offset(offset);
    frame.add_payloads(bytes_[name].substr(offset, bytes));
    stream->Write(frame);
  }

  // Runs the test's stream. The session keeps the operands in `kept`.
  Outcome Run(const std::string& kept, const ChangeMetadata& change,
              v1::ConvStreamRequest header = TestHeader()) {
    const auto is_kept = [&](char name) {
      return kept.find(name) != std::string::npos;
    };
    v1::Operands* operands =
        header.mutable_header()->mutable_operation()->mutable_operands();
    for (const auto& [name, tensor] :
         std::map<char, v1::Tensor*>{{'x', operands->mutable_input()},
                                     {'w', operands->mutable_weight()},
                                     {'g', operands->mutable_grad_output()}}) {
      if (!is_kept(name)) continue;
      tensor->Clear();
      tensor->mutable_kept()->set_tensor_id(std::string(1, name));
    }
    grpc::ClientContext context;
    AddTo(&context, change);
    const auto stream = server_.stub().ConvBackwardStream(&context);
    stream->Write(header);
    if (!is_kept('w')) Send(stream.get(), 'w', v1::OPERAND_WEIGHT, 0, 216);
    for (int64_t slice = 0; slice < 3; ++slice) {
      if (!is_kept('x')) {
        Send(stream.get(), 'x', v1::OPERAND_INPUT, slice * 400, 400);
      }
      if (!is_kept('g')) {
        Send(stream.get(), 'g', v1::OPERAND_GRAD_OUTPUT, slice * 216, 216);
      }
    }
    stream->WritesDone();
    Outcome outcome;
    v1::ConvStreamResponse response;
    while (stream->Read(&response)) {
      if (response.has_end()) {
        outcome.end = response.end();
      } else {
        outcome.results[response.frame().which()] += response.payloads(0);
      }
    }
    outcome.status = stream->Finish();
    outcome.trailers = TrailersOf(context);
    outcome.number = NumberOf(context);
    return outcome;
  }

  static v1::ConvStreamRequest KeepingHeader() {
    v1::ConvStreamRequest header = TestHeader();
    for (auto& result :
         *header.mutable_header()->mutable_operation()->mutable_results()) {
      result.mutable_kept()->set_tensor_id(std::to_string(result.which()));
      result.set_store(v1::ResultRequest::STORE_ADD);
    }
    return header;
  }

  TestServer server_;
  SessionClient client_{server_.channel()};
  int seed_ = 0;
  std::map<char, std::string> bytes_;
};

TEST_F(SessionStreamTest, KeptOperandsGiveTheBitsOfFrames) {
  const Outcome frames = Run("", {client_.id()});
  ASSERT_TRUE(frames.status.ok()) << frames.status.error_message();
  ASSERT_EQ(frames.results.size(), 3u);
  for (const char* kept : {"w", "x", "g", "xg", "xwg"}) {
    const Outcome outcome = Run(kept, {client_.id()});
    EXPECT_TRUE(outcome.status.ok()) << outcome.status.error_message();
    EXPECT_EQ(outcome.results, frames.results) << kept;
  }
}

TEST_F(SessionStreamTest, KeepsResultsAndAddsThem) {
  const Outcome frames = Run("", {client_.id()});
  for (int times = 1; times <= 3; ++times) {
    const Outcome outcome =
        Run(times == 2 ? "xwg" : "w", client_.Next(), KeepingHeader());
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
    EXPECT_TRUE(outcome.results.empty());
    EXPECT_EQ(outcome.number, client_.number() + 1);
    EXPECT_EQ(outcome.end.results(0).tensor().kept().version(), outcome.number);
    client_.Committed();
    for (const auto& [which, bytes] : frames.results) {
      std::vector<float> expected = FloatsOf(bytes);
      for (float& value : expected) value *= static_cast<float>(times);
      const auto kept = client_.Get(std::to_string(which));
      ASSERT_TRUE(kept.status.ok()) << kept.status.error_message();
      EXPECT_EQ(FloatsOf(kept.response.payloads(0)), expected) << which;
    }
  }
}

TEST_F(SessionStreamTest, ARepeatGetsTheStreamsEnd) {
  const ChangeMetadata change = client_.Next();
  const Outcome first = Run("xwg", change, KeepingHeader());
  ASSERT_TRUE(first.status.ok()) << first.status.error_message();
  const std::string sum = client_.Get("2").response.payloads(0);
  const Outcome again = Run("xwg", change, KeepingHeader());
  ASSERT_TRUE(again.status.ok()) << again.status.error_message();
  EXPECT_EQ(again.number, first.number);
  EXPECT_EQ(again.end.SerializeAsString(), first.end.SerializeAsString());
  EXPECT_EQ(client_.Get("2").response.payloads(0), sum);
}

TEST_F(SessionStreamTest, SaysWhatItCannotDo) {
  const Outcome frames = Run("x", client_.Next());
  EXPECT_EQ(frames.status.error_code(), grpc::UNIMPLEMENTED);
  EXPECT_EQ(frames.trailers.field, "operation.results[0].destination");
  const Outcome read = Run("xwg", {client_.id()}, KeepingHeader());
  EXPECT_EQ(read.trailers.field, "operation.results[0].kept");
}

}  // namespace
}  // namespace convgrad
