#include "server/rpc/transport/connection_traffic.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

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

  // Adds the server's end of a new connection, and moves the time on.
  FileDescriptor AddNext() {
    FileDescriptor accepted = Accept();
    traffic_.Add(accepted.get(), now_);
    now_ += absl::Seconds(1);
    return accepted;
  }

  absl::Time now_ = absl::UnixEpoch();
  ListeningSockets listening_;
  ConnectionTraffic traffic_;
};

TEST_F(ConnectionTrafficTest, CountsWhatComes) {
  RawConnection client(listening_.port);
  const FileDescriptor accepted = Accept();
  traffic_.Add(accepted.get(), now_);
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
  traffic_.Add(accepted.get(), now_);
  const std::string peer = PeerOf(accepted.get());
  const auto count = traffic_.CountOf(absl::StrCat("ipv4:", peer));
  ASSERT_NE(count, nullptr);
  const int64_t before = count();
  const FileDescriptor second = ConnectFrom(PortOf(peer), other.port);
  FileDescriptor also_accepted(
      accept(other.sockets.front().get(), nullptr, nullptr));
  traffic_.Add(also_accepted.get(), now_);
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

// Returns a link-local address of this machine; ::1 if it has none.
sockaddr_in6 LinkLocalAddress() {
  sockaddr_in6 address = {};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  ifaddrs* all = nullptr;
  getifaddrs(&all);
  for (const ifaddrs* it = all; it != nullptr; it = it->ifa_next) {
    if (it->ifa_addr == nullptr || it->ifa_addr->sa_family != AF_INET6) {
      continue;
    }
    const auto* found = reinterpret_cast<const sockaddr_in6*>(it->ifa_addr);
    if (IN6_IS_ADDR_LINKLOCAL(&found->sin6_addr)) address = *found;
  }
  freeifaddrs(all);
  return address;
}

TEST_F(ConnectionTrafficTest, KnowsPeersWithLinkLocalAddresses) {
  const absl::StatusOr<ListeningSockets> listening = ListenAt("[::]:0");
  if (!listening.ok()) return;  // This machine has no IPv6.
  sockaddr_in6 address = LinkLocalAddress();
  address.sin6_port = htons(listening->port);
  const FileDescriptor client(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(connect(client.get(), reinterpret_cast<const sockaddr*>(&address),
                    sizeof(address)),
            0);
  const FileDescriptor accepted(
      accept(listening->sockets.front().get(), nullptr, nullptr));
  traffic_.Add(accepted.get(), now_);
  std::array<char, INET6_ADDRSTRLEN> host;
  inet_ntop(AF_INET6, &address.sin6_addr, host.data(), host.size());
  const std::string interface =
      address.sin6_scope_id == 0 ? ""
                                 : absl::StrCat("%25", address.sin6_scope_id);
  const auto count =
      traffic_.CountOf(absl::StrCat("ipv6:%5B", host.data(), interface,
                                    "%5D:", PortOf(PeerOf(accepted.get()))));
  ASSERT_NE(count, nullptr);
  const int64_t before = count();
  send(client.get(), "x", 1, 0);
  char byte;
  recv(accepted.get(), &byte, 1, MSG_WAITALL);
  EXPECT_EQ(count() - before, 1);
}

TEST_F(ConnectionTrafficTest, KnowsNothingOfOthers) {
  EXPECT_EQ(traffic_.CountOf("ipv4:127.0.0.1:9"), nullptr);
  EXPECT_EQ(traffic_.CountOf("unix:"), nullptr);
}

TEST_F(ConnectionTrafficTest, ADescriptorThatIsUsedAnewCountsForItsNewPeer) {
  RawConnection first(listening_.port);
  FileDescriptor accepted = Accept();
  traffic_.Add(accepted.get(), now_);
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
  traffic_.Add(socket, now_);
  EXPECT_EQ(traffic_.CountOf(old_peer), nullptr);
  EXPECT_NE(traffic_.CountOf(absl::StrCat("ipv4:", PeerOf(socket))), nullptr);
}

std::string GrpcNameOf(const FileDescriptor& socket) {
  return absl::StrCat("ipv4:", PeerOf(socket.get()));
}

// Returns whether the other end has closed, without waiting for it.
bool HasEnded(const FileDescriptor& socket) {
  char byte;
  return recv(socket.get(), &byte, 1, MSG_DONTWAIT) == 0;
}

TEST_F(ConnectionTrafficTest, EndsOnlyThoseWithoutCalls) {
  std::vector<FileDescriptor> clients;
  std::vector<FileDescriptor> accepted;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(ConnectFrom(0, listening_.port));
    accepted.push_back(AddNext());
  }
  const std::string busy = GrpcNameOf(accepted[0]);
  const std::string called = GrpcNameOf(accepted[1]);
  traffic_.BeginCall(busy);
  traffic_.BeginCall(called);
  traffic_.BeginCall(called);
  traffic_.EndCall(called, now_);
  // None is idle for long enough.
  EXPECT_EQ(traffic_.EndIdle(9, now_), 0);
  now_ += ConnectionTraffic::kLeastIdle;
  EXPECT_EQ(traffic_.EndIdle(9, now_), 1);
  EXPECT_TRUE(HasEnded(clients[2]));
  EXPECT_EQ(traffic_.EndIdle(9, now_), 0);
  traffic_.EndCall(called, now_);
  EXPECT_EQ(traffic_.EndIdle(9, now_), 0);
  now_ += ConnectionTraffic::kLeastIdle;
  EXPECT_EQ(traffic_.EndIdle(9, now_), 1);
  EXPECT_TRUE(HasEnded(clients[1]));
  EXPECT_FALSE(HasEnded(clients[0]));
}

TEST_F(ConnectionTrafficTest, EndsThoseWithoutCallsForTheLongestTimeFirst) {
  std::vector<FileDescriptor> clients;
  std::vector<FileDescriptor> accepted;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(ConnectFrom(0, listening_.port));
    accepted.push_back(AddNext());
  }
  // A connection that gRPC has closed doesn't count.
  accepted[0] = FileDescriptor();
  now_ += ConnectionTraffic::kLeastIdle;
  EXPECT_EQ(traffic_.EndIdle(1, now_), 1);
  EXPECT_TRUE(HasEnded(clients[1]));
  EXPECT_FALSE(HasEnded(clients[2]));
  // It ends each connection once.
  now_ += absl::Minutes(1);
  EXPECT_EQ(traffic_.EndIdle(9, now_), 1);
}

TEST_F(ConnectionTrafficTest, LeavesAPeerAMinuteForTheLastAnswer) {
  const FileDescriptor client = ConnectFrom(0, listening_.port);
  const FileDescriptor accepted = AddNext();
  // More than the client's kernel takes while the client reads nothing.
  const std::string bytes(1 << 20, 'x');
  while (send(accepted.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
  }
  now_ += ConnectionTraffic::kLeastIdle;
  EXPECT_EQ(traffic_.EndIdle(9, now_), 0);
  now_ += absl::Minutes(1);
  EXPECT_EQ(traffic_.EndIdle(9, now_), 1);
}

TEST_F(ConnectionTrafficTest, EndsNoFileThatHasTheDescriptorByNow) {
  const FileDescriptor client = ConnectFrom(0, listening_.port);
  const FileDescriptor accepted = AddNext();
  const FileDescriptor other = ConnectFrom(0, listening_.port);
  const FileDescriptor not_added = Accept();
  // Another connection takes the number, and the old one is closed.
  ASSERT_EQ(dup2(not_added.get(), accepted.get()), accepted.get());
  EXPECT_TRUE(HasEnded(client));
  now_ += ConnectionTraffic::kLeastIdle;
  EXPECT_EQ(traffic_.EndIdle(9, now_), 0);
  EXPECT_FALSE(HasEnded(other));
}

TEST_F(ConnectionTrafficTest, UnixSocketsEndWhileNoneOfThemHasCalls) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const FileDescriptor client(ends[0]);
  const FileDescriptor accepted(ends[1]);
  traffic_.Add(accepted.get(), now_);
  EXPECT_EQ(traffic_.CountOf("unix:"), nullptr);
  traffic_.BeginCall("unix:");
  now_ += ConnectionTraffic::kLeastIdle;
  EXPECT_EQ(traffic_.EndIdle(9, now_), 0);
  traffic_.EndCall("unix:", now_);
  now_ += ConnectionTraffic::kLeastIdle;
  EXPECT_EQ(traffic_.EndIdle(9, now_), 1);
  EXPECT_TRUE(HasEnded(client));
}

}  // namespace
}  // namespace convgrad
