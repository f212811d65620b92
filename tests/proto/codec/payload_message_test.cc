#include "proto/codec/payload_message.h"

#include <string>

#include "proto/codec/codec.h"
#include "tests/proto/random_operation.h"
#include "tests/proto/status_matchers.h"

namespace convgrad {
namespace {

grpc::Slice CopiedSlice(const std::string& text) { return grpc::Slice(text); }

grpc::ByteBuffer BufferOf(const std::string& bytes, size_t piece = 1 << 20) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    slices.push_back(CopiedSlice(bytes.substr(at, piece)));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

std::string Text(const PayloadView& payload) {
  std::string text(payload.size(), '\0');
  payload.CopyRange(0, absl::MakeSpan(reinterpret_cast<std::byte*>(text.data()),
                                      text.size()));
  return text;
}

std::string BytesOf(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

v1::ConvBackwardRequest SmallRequest() {
  v1::ConvBackwardRequest request;
  *request.mutable_operation() = EncodeOperation(SmallBackward());
  request.mutable_options()->set_backend(v1::BACKEND_CHOICE_ONEDNN);
  return request;
}

absl::StatusOr<std::vector<PayloadView>> Split(const std::string& bytes,
                                               size_t piece = 1 << 20) {
  grpc::ByteBuffer buffer = BufferOf(bytes, piece);
  v1::ConvBackwardRequest head;
  auto payloads = SplitMessage(&buffer, &head);
  EXPECT_FALSE(buffer.Valid());
  return payloads;
}

void ExpectMalformed(const std::string& bytes) {
  for (size_t piece : {1, 3, 1 << 20}) {
    ExpectInvalid(Split(bytes, piece).status(), Reason::kMalformed, "message");
  }
}

const std::string kPayloadTag("\xfa\xff\xff\xff\x0f", 5);

TEST(PayloadViewTest, CopiesAnyRangeThatIsThere) {
  const std::string text = "any bytes, in slices of a few each";
  for (size_t piece : {1, 3, 7, 100}) {
    std::vector<grpc::Slice> slices = {grpc::Slice()};
    for (size_t at = 0; at < text.size(); at += piece) {
      slices.push_back(CopiedSlice(text.substr(at, piece)));
    }
    PayloadView payload(std::move(slices));
    for (size_t begin : {0, 4, 21}) {
      payload.Release(static_cast<int64_t>(begin));
      for (size_t end = begin; end <= text.size(); ++end) {
        std::string range(end - begin, '\0');
        payload.CopyRange(
            static_cast<int64_t>(begin),
            absl::MakeSpan(reinterpret_cast<std::byte*>(range.data()),
                           range.size()));
        EXPECT_EQ(range, text.substr(begin, end - begin));
      }
    }
  }
}

TEST(PayloadMessageTest, JoinsToTheBytesOfTheStockMessage) {
  v1::ConvBackwardRequest request = SmallRequest();
  const std::vector<std::string> payloads = {"first", "",
                                             std::string(300, 'x')};
  std::vector<grpc::Slice> slices;
  for (const std::string& payload : payloads) {
    slices.push_back(CopiedSlice(payload));
  }
  const auto joined = JoinMessage(request, std::move(slices));
  ASSERT_TRUE(joined.ok());
  for (const std::string& payload : payloads) request.add_payloads(payload);
  EXPECT_EQ(BytesOf(*joined), request.SerializeAsString());
  EXPECT_EQ(BytesOf(*JoinMessage(SmallRequest(), {})),
            SmallRequest().SerializeAsString());
}

TEST(PayloadMessageTest, SplitsStockMessagesCutAnywhere) {
  v1::ConvBackwardRequest request = SmallRequest();
  for (const char* text : {"first", "", "a third payload"}) {
    request.add_payloads(text);
  }
  const std::string bytes = request.SerializeAsString();
  for (size_t piece : {1, 2, 7, 64, 1000}) {
    grpc::ByteBuffer buffer = BufferOf(bytes, piece);
    v1::ConvBackwardRequest head;
    const auto payloads = SplitMessage(&buffer, &head);
    ASSERT_TRUE(payloads.ok()) << payloads.status();
    ASSERT_EQ(SizesOf(*payloads), (std::vector<int64_t>{5, 0, 15}));
    EXPECT_EQ(Text((*payloads)[0]), "first");
    EXPECT_EQ(Text((*payloads)[2]), "a third payload");
    EXPECT_EQ(head.SerializeAsString(), SmallRequest().SerializeAsString());
  }
}

TEST(PayloadMessageTest, AcceptsFieldsInAnyOrder) {
  v1::ConvBackwardRequest options, operation;
  *options.mutable_options() = SmallRequest().options();
  *operation.mutable_operation() = SmallRequest().operation();
  const std::string bytes = kPayloadTag + "\x02" + "ab" +
                            options.SerializeAsString() + kPayloadTag + "\x01" +
                            "c" + operation.SerializeAsString();
  grpc::ByteBuffer buffer = BufferOf(bytes, 3);
  v1::ConvBackwardRequest head;
  const auto payloads = SplitMessage(&buffer, &head);
  ASSERT_TRUE(payloads.ok()) << payloads.status();
  EXPECT_EQ(Text((*payloads)[0]) + Text((*payloads)[1]), "abc");
  EXPECT_EQ(head.SerializeAsString(), SmallRequest().SerializeAsString());
}

TEST(PayloadMessageTest, MovesAPayloadOutAndLetsItsSlicesGo) {
  bool released = false;
  // The text is longer than gRPC's inline slices.
  static const char kBytes[] =
      "thirty-two bytes and more, which their owner keeps";
  std::shared_ptr<const void> owner(
      kBytes, [&released](const void*) { released = true; });
  auto joined =
      JoinMessage(v1::ConvBackwardRequest(),
                  {SliceOver(kBytes, sizeof(kBytes), std::move(owner))});
  ASSERT_TRUE(joined.ok());
  v1::ConvBackwardRequest head;
  auto payloads = SplitMessage(&*joined, &head);
  ASSERT_TRUE(payloads.ok());
  EXPECT_FALSE(released);
  char copy[sizeof(kBytes)];
  payloads->front().MoveTo(copy);
  EXPECT_STREQ(copy, kBytes);
  EXPECT_EQ(payloads->front().size(), 0);
  EXPECT_TRUE(released);
}

TEST(PayloadMessageTest, NothingIsLeftOfAPayloadThatWasMovedFrom) {
  auto payloads = Split(kPayloadTag + "\x03" + "abc");
  ASSERT_TRUE(payloads.ok());
  PayloadView moved = std::move(payloads->front());
  EXPECT_EQ(Text(moved), "abc");
  EXPECT_EQ(payloads->front().size(), 0);
  PayloadView assigned;
  assigned = std::move(moved);
  EXPECT_EQ(Text(assigned), "abc");
  EXPECT_EQ(moved.size(), 0);  // NOLINT(bugprone-use-after-move)
}

TEST(PayloadMessageTest, TakesAnEmptyMessage) {
  const auto payloads = Split("");
  ASSERT_TRUE(payloads.ok());
  EXPECT_TRUE(payloads->empty());
  grpc::ByteBuffer invalid;
  v1::ConvBackwardRequest head;
  EXPECT_TRUE(SplitMessage(&invalid, &head).ok());
}

TEST(PayloadMessageTest, RefusesLengthsBeyondTheMessage) {
  ExpectMalformed(kPayloadTag + "\x05" + "four");
  ExpectMalformed(kPayloadTag + std::string("\xff\xff\xff\xff\xff\xff\xff\xff"
                                            "\xff\x01",
                                            10));
  ExpectMalformed(kPayloadTag + std::string("\xff\xff\xff\xff\x07", 5) + "x");
  ExpectMalformed(std::string("\x0a\x7f") + "short");
}

TEST(PayloadMessageTest, RefusesVarintsCutOffOrTooLong) {
  ExpectMalformed("\xfa\xff");
  ExpectMalformed(kPayloadTag);
  ExpectMalformed(kPayloadTag + "\x80");
  ExpectMalformed(kPayloadTag + std::string(11, '\x80'));
  // A varint of ten bytes whose 65th bit would be lost.
  ExpectMalformed(kPayloadTag + std::string(9, '\x80') + "\x02");
  ExpectMalformed("\x08" + std::string(11, '\xff'));
  ExpectMalformed(
      "\x0d"
      "abc");
  ExpectMalformed(
      "\x09"
      "abcdefg");
}

TEST(PayloadMessageTest, RefusesTagsThatNoMessageHas) {
  ExpectMalformed(std::string("\x00\x01", 2));
  ExpectMalformed(std::string("\x02\x00", 2));
  ExpectMalformed("\xff\xff\xff\xff\xff\x01");
  ExpectMalformed("\xff\xff\xff\xff\x7f");
}

TEST(PayloadMessageTest, RefusesGroupsAndPayloadsOfAnotherWireType) {
  ExpectMalformed("\x0b\x0c");
  ExpectMalformed("\x0c");
  ExpectMalformed("\x0e");
  ExpectMalformed(std::string("\xf8\xff\xff\xff\x0f\x01", 6));
  ExpectMalformed(
      std::string("\xfd\xff\xff\xff\x0f"
                  "abcd",
                  9));
}

TEST(PayloadMessageTest, RefusesWhatProtobufRefuses) {
  ExpectMalformed(std::string("\x0a\x02\x08", 3) + "\xff");
}

TEST(PayloadMessageTest, LimitsPayloadsAndHead) {
  std::string many;
  for (int i = 0; i < kMaxPayloads; ++i) many += kPayloadTag + '\0';
  EXPECT_EQ(Split(many)->size(), static_cast<size_t>(kMaxPayloads));
  ExpectInvalid(Split(many + kPayloadTag + '\0').status(),
                Reason::kLimitExceeded, "payloads");

  v1::ConvBackwardRequest request;
  request.mutable_options()->set_request_id(std::string(kMaxHeadBytes, 'x'));
  ExpectInvalid(Split(request.SerializeAsString()).status(),
                Reason::kLimitExceeded, "message");
}

}  // namespace
}  // namespace convgrad
