// Tests which bytes a put sends, as one message and as a stream.
#include "client/cpp/sessions/put_request.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/core/status.h"
#include "client/cpp/borrowed_slices.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/codec/payload_message.h"
#include "proto/stream_slices.h"
#include "proto/tensor_digest.h"

namespace convgrad {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::string TextOf(const PayloadView& payload) {
  std::string text(payload.size(), '\0');
  payload.CopyRange(0, absl::MakeSpan(reinterpret_cast<std::byte*>(text.data()),
                                      text.size()));
  return text;
}

// A message and its payloads' bytes.
template <typename Message>
struct Sent {
  explicit Sent(grpc::ByteBuffer buffer) {
    const auto views = SplitMessage(&buffer, &head);
    EXPECT_TRUE(views.ok()) << views.status();
    for (const PayloadView& view : *views) payloads.push_back(TextOf(view));
  }
  Message head;
  std::vector<std::string> payloads;
};

class PutRequestTest : public testing::Test {
 protected:
  // Returns a tensor of bytes that are all `fill`.
  TensorToPut Tensor(const std::string& name, int64_t bytes, char fill) {
    memory_.push_back(std::make_unique<std::string>(bytes, fill));
    return {name,
            {DataType::kU8, Layout::kNCX, {1, bytes}, 0, 1},
            absl::MakeConstSpan(
                reinterpret_cast<const std::byte*>(memory_.back()->data()),
                memory_.back()->size())};
  }
  static PutRequest Make(std::vector<TensorToPut> tensors) {
    auto request = PutRequest::Make(std::move(tensors), nullptr);
    EXPECT_TRUE(request.ok()) << request.status();
    return *std::move(request);
  }
  // Makes a put of a and b. The server has the bytes of a.
  PutRequest MakeWithKnown() {
    PutRequest request = Make({Tensor("a", 3, 'x'), Tensor("b", 2, 'y')});
    request.AddDigests();
    EXPECT_TRUE(request.LeaveOut(Have({true, false})).ok());
    return request;
  }
  static v1::HaveTensorsResponse Have(const std::vector<bool>& have) {
    v1::HaveTensorsResponse answer;
    for (const bool one : have) answer.add_have(one);
    return answer;
  }
  Sent<v1::PutTensorsRequest> MessageOf(const PutRequest& request) {
    auto message = request.Message(borrowed_);
    EXPECT_TRUE(message.ok()) << message.status();
    return Sent<v1::PutTensorsRequest>(*std::move(message));
  }
  std::vector<Sent<v1::PutTensorsStreamRequest>> FramesOf(
      const PutRequest& request) {
    std::vector<Sent<v1::PutTensorsStreamRequest>> frames;
    const auto next = request.Frames(borrowed_);
    while (auto message = next()) frames.emplace_back(*std::move(message));
    return frames;
  }

  std::vector<std::unique_ptr<std::string>> memory_;
  BorrowedSlices borrowed_;
};

TEST_F(PutRequestTest, RefusesOtherBytesThanTheDescriptorSays) {
  TensorToPut tensor = Tensor("weight", 5, 'x');
  tensor.descriptor.dims = {1, 6};
  const auto detail =
      DetailOf(PutRequest::Make({std::move(tensor)}, nullptr).status());
  ASSERT_TRUE(detail.has_value());
  EXPECT_EQ(detail->reason, Reason::kByteCountMismatch);
  EXPECT_EQ(detail->field, "'weight'");
  EXPECT_EQ(detail->found, "5 bytes");
}

TEST_F(PutRequestTest, SendsEveryTensorUnderItsName) {
  const auto sent = MessageOf(Make({Tensor("a", 3, 'x'), Tensor("b", 2, 'y')}));
  EXPECT_THAT(sent.payloads, ElementsAre("xxx", "yy"));
  ASSERT_EQ(sent.head.tensors_size(), 2);
  EXPECT_EQ(sent.head.tensors(1).name(), "b");
  EXPECT_EQ(sent.head.tensors(1).tensor().inline_().payload_index(), 1);
  EXPECT_EQ(sent.head.tensors(1).digest(), "");
}

TEST_F(PutRequestTest, AsksForTheDigestOfEachTensor) {
  PutRequest request = Make({Tensor("a", 3, 'x'), Tensor("b", 2, 'y')});
  const v1::HaveTensorsRequest question = request.AddDigests();
  EXPECT_THAT(
      question.digests(),
      ElementsAre(DigestOf({DataType::kU8, Layout::kNCX, {1, 3}, 0, 1}, "xxx"),
                  DigestOf({DataType::kU8, Layout::kNCX, {1, 2}, 0, 1}, "yy")));
}

TEST_F(PutRequestTest, LeavesOutWhatTheServerHas) {
  const PutRequest request = MakeWithKnown();
  EXPECT_EQ(request.sent_bytes(), 2);
  EXPECT_EQ(request.all_bytes(), 5);
  const auto sent = MessageOf(request);
  EXPECT_THAT(sent.payloads, ElementsAre("yy"));
  EXPECT_FALSE(sent.head.tensors(0).has_tensor());
  EXPECT_EQ(sent.head.tensors(0).digest().size(), kDigestBytes);
  EXPECT_EQ(sent.head.tensors(1).tensor().inline_().payload_index(), 0);
}

TEST_F(PutRequestTest, RefusesAnAnswerToAnotherQuestion) {
  PutRequest request = Make({Tensor("a", 3, 'x')});
  request.AddDigests();
  EXPECT_EQ(request.LeaveOut(Have({true, true})).code(),
            absl::StatusCode::kInternal);
  EXPECT_EQ(request.sent_bytes(), 3);
}

TEST_F(PutRequestTest, SendsAllBytesIfTheServerHasLostSome) {
  PutRequest request = MakeWithKnown();
  const auto refusal = [](absl::StatusCode code, const std::string& field) {
    return MakeError(code, {Reason::kNotFound, field, "none", "bytes"});
  };
  EXPECT_FALSE(request.SendAllAfter(
      refusal(absl::StatusCode::kNotFound, "tensors[0].name")));
  EXPECT_FALSE(request.SendAllAfter(
      refusal(absl::StatusCode::kInvalidArgument, "tensors[0].digest")));
  EXPECT_FALSE(request.SendAllAfter(absl::NotFoundError("")));
  EXPECT_EQ(request.sent_bytes(), 2);
  const absl::Status lost =
      refusal(absl::StatusCode::kNotFound, "tensors[0].digest");
  EXPECT_TRUE(request.SendAllAfter(lost));
  EXPECT_THAT(MessageOf(request).payloads, ElementsAre("xxx", "yy"));
  // After that, no tensor is left out that another attempt could send.
  EXPECT_FALSE(request.SendAllAfter(lost));
}

TEST_F(PutRequestTest, AStreamHasAHeaderThenTheBytesInOrder) {
  PutRequest request = Make({Tensor("known", 3, 'k'), Tensor("empty", 0, ' '),
                             Tensor("large", kMaxFrameBytes + 1, 'l')});
  request.AddDigests();
  ASSERT_TRUE(request.LeaveOut(Have({true, false, false})).ok());
  const auto frames = FramesOf(request);
  ASSERT_EQ(frames.size(), 3u);
  const auto& header = frames[0].head.header();
  ASSERT_EQ(header.tensors_size(), 3);
  EXPECT_FALSE(header.tensors(0).has_tensor());
  EXPECT_TRUE(header.tensors(1).tensor().has_stream());
  EXPECT_TRUE(header.tensors(2).tensor().has_stream());
  EXPECT_THAT(frames[0].payloads, IsEmpty());
  std::string received;
  for (size_t i = 1; i < frames.size(); ++i) {
    EXPECT_EQ(frames[i].head.frame().tensor(), 2);
    EXPECT_EQ(frames[i].head.frame().byte_offset(), std::ssize(received));
    ASSERT_EQ(frames[i].payloads.size(), 1u);
    EXPECT_LE(std::ssize(frames[i].payloads[0]), kMaxFrameBytes);
    received += frames[i].payloads[0];
  }
  EXPECT_EQ(received, std::string(kMaxFrameBytes + 1, 'l'));
}

TEST_F(PutRequestTest, EachStreamBeginsAnew) {
  const PutRequest request = Make({Tensor("a", 3, 'x')});
  EXPECT_EQ(FramesOf(request).size(), 2u);
  EXPECT_EQ(FramesOf(request).size(), 2u);
}

}  // namespace
}  // namespace convgrad
