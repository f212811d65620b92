// Tests requests for shared memory that the client can't use: each has one
// status and the right detail, and leaks nothing.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "client/cpp/client.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/peers/region_server.h"
#include "tests/end_to_end/peers/temporary_folder.h"

namespace convgrad {
namespace {

class SharedMemoryRefusalsTest : public testing::Test {
 protected:
  RawReply Send() {
    return CallRaw(server_.test_server().channel(), "ConvBackward",
                   request_.SerializeAsString());
  }
  void ExpectRefused(grpc::StatusCode code, const std::string& reason,
                     const std::string& field) {
    const RawReply reply = Send();
    EXPECT_EQ(reply.status.error_code(), code) << reply.status.error_message();
    EXPECT_EQ(reply.trailers.reason, reason) << reply.status.error_message();
    EXPECT_EQ(reply.trailers.field, field) << reply.status.error_message();
    EXPECT_EQ(reply.trailers.pushback_ms, "");
    // The server still works.
    request_ = SeedInRegion(*region_);
    EXPECT_TRUE(Send().status.ok());
    AwaitUsed(4096);
  }
  void ExpectInvalid(const std::string& reason, const std::string& field) {
    ExpectRefused(grpc::StatusCode::INVALID_ARGUMENT, reason, field);
  }
  void AwaitUsed(int64_t bytes) {
    server_.test_server().AwaitMetric(
        absl::StrCat("convgrad_memory_used_bytes ", bytes));
    server_.test_server().AwaitMetric("convgrad_buffers 0");
  }
  v1::Tensor::Region* Weight() {
    return request_.mutable_operation()
        ->mutable_operands()
        ->mutable_weight()
        ->mutable_region();
  }
  auto* Result(int index) {
    return request_.mutable_operation()
        ->mutable_results(index)
        ->mutable_region();
  }

  RegionServer server_;
  std::unique_ptr<SharedRegion> region_ = server_.NewRegion(4096);
  v1::ConvBackwardRequest request_ = SeedInRegion(*region_);
};

TEST_F(SharedMemoryRefusalsTest, IdsThatNoRegionHas) {
  for (const std::string& id : {std::string(16, '\0'), std::string(16, 'x')}) {
    Weight()->set_region_id(id);
    ExpectRefused(grpc::StatusCode::NOT_FOUND, "NOT_FOUND",
                  "operation.operands.weight.region.region_id");
    Result(1)->set_region_id(id);
    ExpectRefused(grpc::StatusCode::NOT_FOUND, "NOT_FOUND",
                  "operation.results[1].region.region_id");
  }
}

TEST_F(SharedMemoryRefusalsTest, RegionsOfOtherServers) {
  RegionServer other;
  const auto foreign = other.NewRegion(4096);
  request_ = SeedInRegion(*foreign);
  ExpectRefused(grpc::StatusCode::NOT_FOUND, "NOT_FOUND",
                "operation.operands.input.region.region_id");
}

TEST_F(SharedMemoryRefusalsTest, RegionsThatWereClosed) {
  auto closed = server_.NewRegion(8192);
  request_ = SeedInRegion(*closed);
  closed.reset();
  server_.test_server().AwaitMetric("convgrad_regions 1");
  ExpectRefused(grpc::StatusCode::NOT_FOUND, "NOT_FOUND",
                "operation.operands.input.region.region_id");
}

TEST_F(SharedMemoryRefusalsTest, IdsOfAnotherLength) {
  for (size_t length : {0, 15, 17}) {
    Weight()->set_region_id(std::string(length, 'x'));
    ExpectInvalid("OUT_OF_RANGE", "operation.operands.weight.region.region_id");
  }
}

TEST_F(SharedMemoryRefusalsTest, BytesBeyondTheEnd) {
  for (int64_t offset : {4096 - 15, 4096, 1 << 30}) {
    Weight()->set_byte_offset(offset);
    ExpectInvalid("OUT_OF_RANGE",
                  "operation.operands.weight.region.byte_offset");
    Result(1)->set_byte_offset(offset);
    ExpectInvalid("OUT_OF_RANGE", "operation.results[1].region.byte_offset");
  }
  Weight()->set_byte_offset(4096 - 16);
  EXPECT_TRUE(Send().status.ok());
}

TEST_F(SharedMemoryRefusalsTest, OffsetsThatWrap) {
  Weight()->set_byte_offset(-64);
  ExpectInvalid("OUT_OF_RANGE", "operation.operands.weight.region.byte_offset");
  Weight()->set_byte_offset(INT64_MAX);
  ExpectInvalid("OVERFLOW", "operation.operands.weight.region.byte_offset");
  Result(0)->set_byte_offset(INT64_MAX - 8);
  ExpectInvalid("OVERFLOW", "operation.results[0].region.byte_offset");
}

TEST_F(SharedMemoryRefusalsTest, LengthsThatAreNotTheTensors) {
  for (int64_t length :
       {int64_t{0}, int64_t{15}, int64_t{17}, INT64_MAX, int64_t{-1}}) {
    Weight()->set_byte_length(length);
    const RawReply reply = Send();
    EXPECT_EQ(reply.trailers.found, absl::StrCat(length, " bytes"));
    EXPECT_EQ(reply.trailers.expected, "16 bytes");
    ExpectInvalid("BYTE_COUNT_MISMATCH",
                  "operation.operands.weight.region.byte_length");
    Result(0)->set_byte_length(length);
    ExpectInvalid("BYTE_COUNT_MISMATCH",
                  "operation.results[0].region.byte_length");
  }
}

TEST_F(SharedMemoryRefusalsTest, ResultsThatOverlap) {
  Result(0)->set_byte_offset(64 + 15);  // The last byte of weight.
  ExpectInvalid("OUT_OF_RANGE", "operation.results[0].region");
  Result(1)->set_byte_offset(192 + 35);  // The last byte of grad_input.
  ExpectInvalid("OUT_OF_RANGE", "operation.results[1].region");
}

TEST_F(SharedMemoryRefusalsTest, WhatIsNotBuilt) {
  request_.mutable_operation()->mutable_results(0)->set_store(
      v1::ResultRequest::STORE_ADD);
  ExpectRefused(grpc::StatusCode::UNIMPLEMENTED, "UNSUPPORTED",
                "operation.results[0].store");
}

TEST_F(SharedMemoryRefusalsTest, ErrorsThatTellTheId) {
  Weight()->set_byte_offset(4096);
  const std::string id = Weight()->region_id();
  EXPECT_FALSE(absl::StrContains(Send().status.error_message(), id));
  Weight()->set_region_id("a guessable  id.");
  EXPECT_FALSE(absl::StrContains(Send().status.error_message(), "guessable"));
}

TEST_F(SharedMemoryRefusalsTest, ServersThatOfferNone) {
  TestServer without;
  const RawReply reply =
      CallRaw(without.channel(), "ConvBackward", request_.SerializeAsString());
  EXPECT_EQ(reply.status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(reply.trailers.reason, "UNSUPPORTED");
  EXPECT_EQ(reply.trailers.field, "operation.operands.input.region");
  without.ExpectNothingHeld();
}

TEST_F(SharedMemoryRefusalsTest, MoreMemoryThanThereIs) {
  const int64_t most = server_.test_server().server().config().max_region_bytes;
  for (int64_t bytes : {int64_t{0}, int64_t{-1}}) {
    EXPECT_EQ(SharedRegion::Connect(server_.address(), bytes).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  for (int64_t bytes : {most + 1, INT64_MAX, most}) {
    EXPECT_EQ(SharedRegion::Connect(server_.address(), bytes).status().code(),
              absl::StatusCode::kResourceExhausted)
        << bytes;
  }
  // The region has whole pages, and one page is left for the used memory.
  const int64_t pages = (most / 4096 - 1) * 4096;
  EXPECT_TRUE(SharedRegion::Connect(server_.address(), pages).ok());
  AwaitUsed(4096);
}

TEST_F(SharedMemoryRefusalsTest, DestinationsThatTheClientCannotName) {
  const auto client = *Client::Connect({server_.test_server().address()});
  OperationCall call;
  call.operation.problem = *Parse("linear_n1_c1_o1");
  call.operation.operand(Operand::kInput) = {
      DataType::kF32, Layout::kNCX, {1, 1}};
  call.operation.operand(Operand::kWeight) = {
      DataType::kF32, Layout::kOIX, {1, 1}};
  call.operation.results = {
      {Result::kOutput, {DataType::kF32, Layout::kNCX, {1, 1}}}};
  const float one = 1;
  call.operands.fill(absl::MakeConstSpan(
      reinterpret_cast<const std::byte*>(&one), sizeof(one)));
  float outside = 0;
  const auto expect_refused = [&](absl::Span<std::byte> destination) {
    call.destinations = {destination};
    EXPECT_EQ(client->Run(call).status().code(),
              absl::StatusCode::kInvalidArgument);
  };
  call.destinations = {region_->bytes().subspan(0, 4)};
  call.region = region_.get();
  EXPECT_TRUE(client->Run(call).ok());
  expect_refused(region_->bytes().subspan(0, 8));
  // The client fills memory of its own.
  call.destinations = {
      absl::MakeSpan(reinterpret_cast<std::byte*>(&outside), 4)};
  const auto reply = client->Run(call);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(outside, 1);
  EXPECT_EQ(reply->results[0].bytes.data(),
            reinterpret_cast<std::byte*>(&outside));
  call.destinations.assign(2, region_->bytes().subspan(0, 4));
  EXPECT_FALSE(client->Run(call).ok()) << "more than results";
}

TEST(SharedMemoryRefusals, ServersThatAcceptNoConnection) {
  const TemporaryFolder folder;
  const std::string path = absl::StrCat(folder.path(), "/full");
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  path.copy(name.sun_path, sizeof(name.sun_path) - 1);
  const auto* address = reinterpret_cast<const sockaddr*>(&name);
  const FileDescriptor listener(socket(AF_UNIX, SOCK_STREAM, 0));
  ASSERT_EQ(bind(listener.get(), address, sizeof(name)), 0);
  ASSERT_EQ(listen(listener.get(), 0), 0);
  const FileDescriptor queued(socket(AF_UNIX, SOCK_STREAM, 0));
  ASSERT_EQ(connect(queued.get(), address, sizeof(name)), 0);
  EXPECT_EQ(
      SharedRegion::Connect(absl::StrCat("unix:", path), 4096).status().code(),
      absl::StatusCode::kUnavailable);
  unlink(path.c_str());
}

}  // namespace
}  // namespace convgrad
