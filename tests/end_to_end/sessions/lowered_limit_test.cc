// Tests puts to a running server whose cgroup's memory limit falls below what
// its sessions keep. The server reads the limit in a /sys of the test's own.
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/end_to_end/sessions/tensor_stream.h"

namespace convgrad {
namespace {

class LoweredLimitTest : public ::testing::Test {
 protected:
  LoweredLimitTest()
      : root_(std::filesystem::path(testing::TempDir()) / "lowered_limit") {
    Write("proc/self/cgroup", "0::/pod\n");
    SetLimit("1073741824");
    Config config = TestConfig();
    config.memory_budget_bytes = 0;
    config.machine_root = root_.string();
    server_.emplace(config);
    client_.emplace(server_->channel());
  }
  ~LoweredLimitTest() override {
    client_.reset();
    server_.reset();
    std::filesystem::remove_all(root_);
  }

  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  void SetLimit(const std::string& bytes) {
    Write("sys/fs/cgroup/pod/memory.max", bytes);
  }

  SessionReply<v1::PutTensorsResponse> PutByStream(const std::string& name,
                                                   const std::string& bytes) {
    std::vector<v1::PutTensorsStreamRequest> messages(1);
    AddStreamed(name, FloatsOfBytes(static_cast<int64_t>(bytes.size())),
                messages[0].mutable_header());
    AddFrames(0, bytes, &messages);
    auto reply = SendAll(server_->channel(), client_->Next(), messages);
    // BUSY leaves the epoch as it is.
    if (reply.status.ok()) client_->Committed();
    return reply;
  }

  const std::filesystem::path root_;
  std::optional<TestServer> server_;
  std::optional<SessionClient> client_;
};

TEST_F(LoweredLimitTest, PutsAreRefusedByNameUntilThereIsRoom) {
  const std::string some = RandomBytes(kMiB, 1);
  const std::string much = RandomBytes(96 * kMiB, 2);
  const auto put = PutByStream("y", much);
  ASSERT_TRUE(put.status.ok()) << put.status.error_message();
  const ChangeMetadata last = client_->Next();
  const auto put_again = [&] {
    return SessionClient::Call(
        &client_->stub(), &v1::ConvGradSessions::Stub::PutTensors,
        SessionClient::PutOf("z", FloatsOfBytes(kMiB), some), last);
  };
  ASSERT_TRUE(put_again().status.ok());
  client_->Committed();
  SetLimit("268435456");
  server_->AwaitMetric("convgrad_kept_capacity_bytes 16777216");
  // A repeat needs no memory.
  EXPECT_TRUE(put_again().status.ok());
  const auto by_stream = PutByStream("x", some);
  EXPECT_EQ(by_stream.status.error_code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_EQ(by_stream.trailers.field, "kept bytes");
  EXPECT_EQ(by_stream.trailers.reason, "BUSY");
  // The server refuses the put before it takes memory for the tensor, so
  // `found` doesn't contain the tensor's bytes.
  EXPECT_EQ(by_stream.trailers.found, "101711872 that sessions keep");
  const auto by_message = SessionClient::Call(
      &client_->stub(), &v1::ConvGradSessions::Stub::PutTensors,
      SessionClient::PutOf("x", FloatsOfBytes(kMiB), some), client_->Next());
  EXPECT_EQ(by_message.trailers.field, "kept bytes");
  EXPECT_EQ(by_message.trailers.found, by_stream.trailers.found);
  EXPECT_EQ(client_->List().response.tensors_size(), 2);
  ASSERT_TRUE(client_->Drop("y").status.ok());
  EXPECT_TRUE(PutByStream("x", some).status.ok());
}

}  // namespace
}  // namespace convgrad
