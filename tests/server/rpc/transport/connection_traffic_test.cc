#include "server/rpc/transport/connection_traffic.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/rpc/transport/listening_socket.h"
#include "tests/end_to_end/peers/raw_connection.h"

namespace convgrad {
namespace {

class ConnectionTrafficTest : public testing::Test {
 protected:
  ConnectionTrafficTest() : listening_(*ListenAt("127.0.0.1:0")) {}

  // Accepts a connection, which must have arrived.
  FileDescriptor Accept() {
    return FileDescriptor(
        accept(listening_.sockets.front().get(), nullptr, nullptr));
  }

  ListeningSockets listening_;
  ConnectionTraffic traffic_;
};

TEST_F(ConnectionTrafficTest, CountsWhatComes) {
  RawConnection client(listening_.port);
  const FileDescriptor accepted = Accept();
  traffic_.Add(accepted.get());
  const auto count =
      traffic_.CountOf(absl::StrCat("ipv4:", PeerOf(accepted.get())));
  ASSERT_NE(count, nullptr);
  const int64_t before = count();
  client.Send(std::string(5000, 'x'));
  // Waits until the bytes have arrived.
  std::string bytes(5000, '\0');
  recv(accepted.get(), bytes.data(), bytes.size(), MSG_WAITALL);
  EXPECT_EQ(count() - before, 5000);
}

// Connects from `port` of 127.0.0.1, which may have other connections.
FileDescriptor ConnectFrom(int port, int to) {
  FileDescriptor file(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(file.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  EXPECT_EQ(bind(file.get(), reinterpret_cast<const sockaddr*>(&address),
                 sizeof(address)),
            0);
  address.sin_port = htons(to);
  EXPECT_EQ(connect(file.get(), reinterpret_cast<const sockaddr*>(&address),
                    sizeof(address)),
            0);
  return file;
}

// A client may connect to two addresses of --listen from one port.
TEST_F(ConnectionTrafficTest, CountsAllConnectionsOfAPeer) {
  const ListeningSockets other = *ListenAt("127.0.0.1:0");
  const FileDescriptor first = ConnectFrom(0, listening_.port);
  const FileDescriptor accepted = Accept();
  traffic_.Add(accepted.get());
  const std::string peer = PeerOf(accepted.get());
  const auto count = traffic_.CountOf(absl::StrCat("ipv4:", peer));
  ASSERT_NE(count, nullptr);
  const int64_t before = count();
  const FileDescriptor second = ConnectFrom(PortOf(peer), other.port);
  FileDescriptor also_accepted(
      accept(other.sockets.front().get(), nullptr, nullptr));
  traffic_.Add(also_accepted.get());
  std::string bytes(5000, 'x');
  for (const auto& [from, to] :
       {std::pair{first.get(), accepted.get()},
        std::pair{second.get(), also_accepted.get()}}) {
    ASSERT_EQ(send(from, bytes.data(), bytes.size(), 0), 5000);
    recv(to, bytes.data(), bytes.size(), MSG_WAITALL);
  }
  EXPECT_EQ(count() - before, 2 * 5000);
  also_accepted = FileDescriptor();
  EXPECT_EQ(count() - before, 5000);
}

TEST_F(ConnectionTrafficTest, KnowsNothingOfOthers) {
  EXPECT_EQ(traffic_.CountOf("ipv4:127.0.0.1:9"), nullptr);
  EXPECT_EQ(traffic_.CountOf("unix:"), nullptr);
}

TEST_F(ConnectionTrafficTest, ADescriptorThatIsUsedAnewCountsForItsNewPeer) {
  RawConnection first(listening_.port);
  FileDescriptor accepted = Accept();
  traffic_.Add(accepted.get());
  const std::string old_peer = absl::StrCat("ipv4:", PeerOf(accepted.get()));
  const auto old_count = traffic_.CountOf(old_peer);
  const int socket = accepted.get();
  accepted = FileDescriptor();
  EXPECT_EQ(old_count(), 0);
  RawConnection second(listening_.port);
  accepted = Accept();
  ASSERT_EQ(dup2(accepted.get(), socket), socket);
  second.Send("x");
  EXPECT_EQ(old_count(), 0);
  traffic_.Add(socket);
  EXPECT_EQ(traffic_.CountOf(old_peer), nullptr);
  EXPECT_NE(traffic_.CountOf(absl::StrCat("ipv4:", PeerOf(socket))), nullptr);
}

}  // namespace
}  // namespace convgrad
