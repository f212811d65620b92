// Tests how a tensor is assembled from a reply and from a stream, and that no
// server can make the client write outside it.
#include "client/cpp/sessions/fetched_tensor.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "proto/codec/codec.h"
#include "proto/codec/payload_message.h"

namespace convgrad {
namespace {

const TensorDescriptor kSixBytes{DataType::kU8, Layout::kNCX, {2, 3}, 0, 1};

grpc::ByteBuffer Message(const google::protobuf::Message& head,
                         const std::vector<std::string>& payloads) {
  std::vector<grpc::Slice> slices;
  for (const std::string& payload : payloads) slices.emplace_back(payload);
  auto message = JoinMessage(head, std::move(slices));
  EXPECT_TRUE(message.ok()) << message.status();
  return *std::move(message);
}

v1::GetTensorsResponse Response() {
  v1::GetTensorsResponse response;
  auto* tensor = response.add_tensors();
  tensor->set_version(4);
  *tensor->mutable_tensor() = EncodeTensor(kSixBytes, 0);
  return response;
}

std::string TextOf(const FetchedTensor& fetched) {
  std::string text(fetched.data.bytes().size(), '\0');
  std::memcpy(text.data(), fetched.data.bytes().data(), text.size());
  return text;
}

absl::StatusOr<FetchedTensor> Decode(const v1::GetTensorsResponse& response,
                                     const std::vector<std::string>& payloads) {
  grpc::ByteBuffer message = Message(response, payloads);
  return DecodeFetched(&message);
}

TEST(DecodeFetched, ReturnsTheTensor) {
  const auto fetched = Decode(Response(), {"abcdef"});
  ASSERT_TRUE(fetched.ok()) << fetched.status();
  EXPECT_EQ(fetched->version, 4);
  EXPECT_EQ(ToString(fetched->descriptor), ToString(kSixBytes));
  EXPECT_EQ(TextOf(*fetched), "abcdef");
}

TEST(DecodeFetched, RefusesRepliesThatDoNotFit) {
  const auto expect_refused = [](const v1::GetTensorsResponse& response,
                                 const std::vector<std::string>& payloads) {
    EXPECT_EQ(Decode(response, payloads).status().code(),
              absl::StatusCode::kInternal);
  };
  expect_refused(Response(), {});
  expect_refused(Response(), {"abcde"});
  expect_refused(Response(), {"abcdefg"});
  expect_refused(Response(), {"abc", "def"});
  expect_refused({}, {"abcdef"});
  v1::GetTensorsResponse two = Response();
  *two.add_tensors() = Response().tensors(0);
  expect_refused(two, {"abcdef"});
}

class FetchedFramesTest : public testing::Test {
 protected:
  absl::Status AddHeader() {
    v1::GetTensorsStreamResponse response;
    *response.mutable_header() = Response();
    grpc::ByteBuffer message = Message(response, {});
    return frames_.Add(&message);
  }
  absl::Status AddFrame(int64_t offset, const std::vector<std::string>& bytes,
                        int tensor = 0) {
    v1::GetTensorsStreamResponse response;
    response.mutable_frame()->set_tensor(tensor);
    response.mutable_frame()->set_byte_offset(offset);
    grpc::ByteBuffer message = Message(response, bytes);
    return frames_.Add(&message);
  }

  FetchedFrames frames_;
};

TEST_F(FetchedFramesTest, PutsFramesTogether) {
  ASSERT_TRUE(AddHeader().ok());
  ASSERT_TRUE(AddFrame(0, {"abcd"}).ok());
  ASSERT_TRUE(AddFrame(4, {"ef"}).ok());
  const auto fetched = frames_.Take();
  ASSERT_TRUE(fetched.ok()) << fetched.status();
  EXPECT_EQ(TextOf(*fetched), "abcdef");
}

TEST_F(FetchedFramesTest, RefusesFramesThatDoNotFit) {
  const auto expect_refused = [](const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  };
  expect_refused(AddFrame(0, {"abc"}));  // no header
  ASSERT_TRUE(AddHeader().ok());
  ASSERT_TRUE(AddFrame(0, {"abc"}).ok());
  expect_refused(AddHeader());
  expect_refused(AddFrame(0, {"abc"}));
  expect_refused(AddFrame(4, {"ef"}));
  expect_refused(AddFrame(-1, {"ef"}));
  expect_refused(AddFrame(3, {"defg"}));
  expect_refused(AddFrame(3, {""}));
  expect_refused(AddFrame(3, {}));
  expect_refused(AddFrame(3, {"d", "e"}));
  expect_refused(AddFrame(3, {"def"}, /*tensor=*/1));
  expect_refused(frames_.Take().status());  // Half of the tensor.
  EXPECT_TRUE(AddFrame(3, {"def"}).ok());
  EXPECT_TRUE(frames_.Take().ok());
}

TEST_F(FetchedFramesTest, AnotherAttemptBeginsAnew) {
  ASSERT_TRUE(AddHeader().ok());
  ASSERT_TRUE(AddFrame(0, {"abcdef"}).ok());
  frames_.Begin();
  EXPECT_FALSE(frames_.Take().ok());
  ASSERT_TRUE(AddHeader().ok());
  ASSERT_TRUE(AddFrame(0, {"uvwxyz"}).ok());
  EXPECT_EQ(TextOf(*frames_.Take()), "uvwxyz");
}

}  // namespace
}  // namespace convgrad
