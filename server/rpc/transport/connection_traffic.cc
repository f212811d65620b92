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

int64_t BytesOf(int socket, const std::string& peer, bool only_received) {
  tcp_info info = {};
  socklen_t size = sizeof(info);
  if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  // Kernels before 4.1 don't report the bytes.
  if (size < offsetof(tcp_info, tcpi_bytes_received) +
                 sizeof(info.tcpi_bytes_received)) {
    return 0;
  }
  // gRPC may have closed the socket, and the descriptor may belong to another
  // connection.
  if (PeerOf(socket) != peer) return 0;
  return static_cast<int64_t>(info.tcpi_bytes_received +
                              (only_received ? 0 : info.tcpi_bytes_acked));
}

}  // namespace

void ConnectionTraffic::Add(int socket) {
  std::string peer = PeerOf(socket);
  MutexLock lock(&mutex_);
  std::string& known = peers_[socket];
  const auto old = sockets_.find(known);
  if (old != sockets_.end()) {
    old->second.erase(socket);
    if (old->second.empty()) sockets_.erase(old);
  }
  sockets_[peer].insert(socket);
  known = std::move(peer);
}

ConnectionTraffic::Count ConnectionTraffic::CountOf(const std::string& peer,
                                                    bool only_received) const {
  std::string name = WithoutScheme(peer);
  MutexLock lock(&mutex_);
  if (!sockets_.contains(name)) return nullptr;
  return [this, only_received, name = std::move(name)] {
    MutexLock lock(&mutex_);
    const auto found = sockets_.find(name);
    int64_t bytes = 0;
    if (found == sockets_.end()) return bytes;
    for (const int socket : found->second) {
      bytes += BytesOf(socket, name, only_received);
    }
    return bytes;
  };
}

}  // namespace convgrad
