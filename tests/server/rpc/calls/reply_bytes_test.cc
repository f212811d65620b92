#include "server/rpc/calls/reply_bytes.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

std::string TextOf(const SharedBytes& bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data), bytes.size);
}

ChangeOrder::Reply ReplyOf(const std::vector<std::string>& pieces) {
  std::vector<grpc::Slice> slices(pieces.begin(), pieces.end());
  return std::make_shared<const grpc::ByteBuffer>(slices.data(), slices.size());
}

TEST(ReplyBytes, AreThoseOfAllPieces) {
  const std::string large(100'000, 'x');
  for (const std::vector<std::string>& pieces :
       {std::vector<std::string>{}, {"one"}, {"one", "", large, "two"}}) {
    std::string whole;
    for (const std::string& piece : pieces) whole += piece;
    const ChangeOrder::Reply reply = ReplyOf(pieces);
    for (int i = 0; i < 2; ++i) {
      const absl::StatusOr<SharedBytes> bytes = BytesOfReply(reply);
      ASSERT_TRUE(bytes.ok()) << bytes.status();
      EXPECT_EQ(TextOf(*bytes), whole);
    }
  }
}

TEST(ReplyBytes, BecomeAReplyThatSharesThem) {
  const auto text = std::make_shared<const std::string>(1000, 'r');
  const ChangeOrder::Reply reply =
      ReplyOver({reinterpret_cast<const std::byte*>(text->data()), 1000, text});
  EXPECT_EQ(text.use_count(), 2);
  EXPECT_EQ(TextOf(*BytesOfReply(reply)), *text);
}

}  // namespace
}  // namespace convgrad
