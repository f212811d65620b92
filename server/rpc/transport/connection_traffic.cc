#include "server/rpc/transport/connection_traffic.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <utility>

#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "server/rpc/transport/listening_socket.h"

namespace convgrad {
namespace {

// Converts gRPC's name of a peer to that of PeerOf.
std::string WithoutScheme(absl::string_view peer) {
  return absl::StrReplaceAll(peer.substr(peer.find(':') + 1),
                             {{"%5B", "["}, {"%5D", "]"}});
}

struct Bytes {
  int64_t received = 0;
  int64_t acknowledged = 0;
};

Bytes BytesOf(int socket, const std::string& peer) {
  tcp_info info = {};
  socklen_t size = sizeof(info);
  if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
  // Kernels before 4.1 don't report the bytes.
  if (size < offsetof(tcp_info, tcpi_bytes_received) +
                 sizeof(info.tcpi_bytes_received)) {
    return {};
  }
  // gRPC may have closed the socket, and the descriptor may belong to another
  // connection.
  if (PeerOf(socket) != peer) return {};
  return {static_cast<int64_t>(info.tcpi_bytes_received),
          static_cast<int64_t>(info.tcpi_bytes_acked)};
}

}  // namespace

void ConnectionTraffic::Add(int socket) {
  std::string peer = PeerOf(socket);
  MutexLock lock(&mutex_);
  std::string& known = peers_[socket];
  const auto old = sockets_.find(known);
  if (old != sockets_.end() && old->second == socket) sockets_.erase(old);
  sockets_[peer] = socket;
  known = std::move(peer);
}

int ConnectionTraffic::SocketOf(const std::string& name) const {
  MutexLock lock(&mutex_);
  const auto found = sockets_.find(name);
  return found == sockets_.end() ? -1 : found->second;
}

ConnectionTraffic::Count ConnectionTraffic::CountOf(
    const std::string& peer) const {
  std::string name = WithoutScheme(peer);
  const int socket = SocketOf(name);
  if (socket < 0) return nullptr;
  return [socket, name = std::move(name)] {
    const Bytes bytes = BytesOf(socket, name);
    return bytes.received + bytes.acknowledged;
  };
}

ConnectionTraffic::Count ConnectionTraffic::ReceivedOf(
    const std::string& peer) const {
  std::string name = WithoutScheme(peer);
  const int socket = SocketOf(name);
  if (socket < 0) return nullptr;
  return [socket, name = std::move(name)] {
    return BytesOf(socket, name).received;
  };
}

}  // namespace convgrad
