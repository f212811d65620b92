#include "server/rpc/transport/arrival_watch.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "proto/codec/payload_message.h"
#include "server/rpc/transport/listening_socket.h"

namespace convgrad {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// A TCP connection to this process. Only Send reads its bytes.
class Connection {
 public:
  explicit Connection(ConnectionTraffic* traffic) {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener, any, size), 0);
    EXPECT_EQ(listen(listener, 1), 0);
    EXPECT_EQ(getsockname(listener, any, &size), 0);
    client_ = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(connect(client_, any, size), 0);
    server_ = accept(listener, nullptr, nullptr);
    close(listener);
    traffic->Add(server_, absl::Now());
    peer_ = "ipv4:" + PeerOf(server_);
  }
  ~Connection() {
    close(client_);
    close(server_);
  }

  // Makes the server receive `bytes`.
  void Send(int64_t bytes) {
    std::string buffer(1 << 16, 'x');
    while (bytes > 0) {
      const ssize_t sent =
          send(client_, buffer.data(),
               std::min<int64_t>(bytes, static_cast<int64_t>(buffer.size())),
               MSG_NOSIGNAL);
      ASSERT_GT(sent, 0);
      bytes -= sent;
      for (int64_t got = 0; got < sent;) {
        const ssize_t read = recv(server_, buffer.data(), sent - got, 0);
        ASSERT_GT(read, 0);
        got += read;
      }
    }
  }
  const std::string& peer() const { return peer_; }

 private:
  int client_ = -1;
  int server_ = -1;
  std::string peer_;
};

class ArrivalWatchTest : public testing::Test {
 protected:
  uint64_t Expect(const Connection& connection, int64_t bytes) {
    return watch_.Expect(connection.peer(), bytes, [this](bool is_only_one) {
      ++ended_;
      was_only_one_ = is_only_one;
    });
  }
  int Ended() {
    watch_.Look();
    return ended_;
  }

  ConnectionTraffic traffic_;
  ArrivalWatch watch_{&traffic_};
  int ended_ = 0;
  bool was_only_one_ = false;
};

TEST_F(ArrivalWatchTest, WhatWasDeclaredMayCome) {
  Connection connection(&traffic_);
  connection.Send(kMiB);  // Before the watch; not limited.
  const uint64_t id = Expect(connection, 40 * kMiB);
  EXPECT_NE(id, 0u);
  connection.Send(41 * kMiB);
  EXPECT_EQ(Ended(), 0);
  watch_.Settle(id);
  connection.Send(60 * kMiB);  // Never read.
  EXPECT_EQ(Ended(), 0);
}

TEST_F(ArrivalWatchTest, EndsACallWhoseConnectionSendsMore) {
  Connection connection(&traffic_);
  const uint64_t id = Expect(connection, 0);
  connection.Send(ArrivalWatch::kUnreadBytes + kMaxHeadBytes);
  EXPECT_EQ(Ended(), 0);
  connection.Send(1);
  EXPECT_EQ(Ended(), 1);
  EXPECT_TRUE(was_only_one_);
  EXPECT_EQ(Ended(), 1);
  watch_.Settle(id);  // Has no effect.
}

TEST_F(ArrivalWatchTest, EndsAllCallsOfTheConnectionAndNoOthers) {
  Connection connection(&traffic_), other(&traffic_);
  Expect(connection, kMiB);
  Expect(connection, 2 * kMiB);
  Expect(other, 0);
  connection.Send(ArrivalWatch::kUnreadBytes + 2 * kMaxHeadBytes + 4 * kMiB);
  EXPECT_EQ(Ended(), 2);
  EXPECT_FALSE(was_only_one_);
}

// Bytes that a message declared but didn't send don't count for the next one.
TEST_F(ArrivalWatchTest, WhatWasDeclaredAndNotSentIsGone) {
  Connection connection(&traffic_);
  Expect(connection, 0);
  const uint64_t large = Expect(connection, 100 * kMiB);
  EXPECT_EQ(Ended(), 0);
  watch_.Settle(large);
  EXPECT_EQ(Ended(), 0);
  connection.Send(ArrivalWatch::kUnreadBytes + kMaxHeadBytes + 1);
  EXPECT_EQ(Ended(), 1);
}

TEST_F(ArrivalWatchTest, KnowsNothingOfOtherSockets) {
  EXPECT_EQ(watch_.Expect("unix:", 0, [](bool) { FAIL(); }), 0u);
  watch_.Settle(0);
  watch_.Look();
  EXPECT_EQ(watch_.Expect("ipv4:127.0.0.1:1", 0, [](bool) { FAIL(); }), 0u);
}

}  // namespace
}  // namespace convgrad
