#include "server/rpc/transport/connection_traffic.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "proto/file_descriptor.h"
#include "server/rpc/transport/listening_socket.h"

namespace convgrad {
namespace {

// The time that a peer may take to acknowledge the last answer.
constexpr absl::Duration kMostIdle = absl::Minutes(1);

constexpr absl::string_view kUnix = "unix";  // PeerOf a UNIX socket.

// Removes the interface of a link-local address, such as "%eth0": gRPC writes
// its number instead.
std::string WithoutInterface(std::string name) {
  const size_t interface = name.find('%');
  if (interface != name.npos) {
    name.erase(interface, name.find(']') - interface);
  }
  return name;
}

std::string NameOf(int socket) { return WithoutInterface(PeerOf(socket)); }

// Converts gRPC's name of a peer to that of NameOf its socket.
std::string NameOf(absl::string_view peer) {
  if (absl::StartsWith(peer, kUnix)) return std::string(kUnix);
  return WithoutInterface(absl::StrReplaceAll(peer.substr(peer.find(':') + 1),
                                              {{"%5B", "["}, {"%5D", "]"}}));
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
  if (NameOf(socket) != peer) return 0;
  return static_cast<int64_t>(info.tcpi_bytes_received +
                              (only_received ? 0 : info.tcpi_bytes_acked));
}

// Returns a number that no other socket of this machine ever has; 0 if the file
// isn't a socket.
uint64_t CookieOf(int file) {
  uint64_t cookie = 0;
  socklen_t size = sizeof(cookie);
  if (getsockopt(file, SOL_SOCKET, SO_COOKIE, &cookie, &size) != 0) return 0;
  return cookie;
}

// Returns whether the kernel keeps bytes that the peer hasn't acknowledged.
bool HasUnacknowledged(int socket) {
  int bytes = 0;
  return ioctl(socket, SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

// Ends the connection of `socket`, unless the descriptor is that of another
// file by now. Returns false also if there is no descriptor for a copy.
bool Shutdown(int socket, uint64_t cookie) {
  if (cookie == 0 || CookieOf(socket) != cookie) return false;
  // gRPC may close the socket at any time, and the descriptor may become
  // another file's. The copy can't.
  const FileDescriptor copy(fcntl(socket, F_DUPFD_CLOEXEC, 0));
  return copy.ok() && CookieOf(copy.get()) == cookie &&
         shutdown(copy.get(), SHUT_RDWR) == 0;
}

}  // namespace

void ConnectionTraffic::Add(int socket, absl::Time now) {
  std::string peer = NameOf(socket);
  MutexLock lock(&mutex_);
  Remove(socket);
  peers_[peer].sockets.insert(socket);
  connections_[socket] = {std::move(peer), CookieOf(socket), now};
}

void ConnectionTraffic::Remove(int socket) {
  const auto found = connections_.find(socket);
  if (found == connections_.end()) return;
  const std::string peer = std::move(found->second.peer);
  connections_.erase(found);
  peers_[peer].sockets.erase(socket);
  Tidy(peer);
}

void ConnectionTraffic::Tidy(const std::string& peer) {
  const auto found = peers_.find(peer);
  if (found->second.sockets.empty() && found->second.calls == 0) {
    peers_.erase(found);
  }
}

ConnectionTraffic::Count ConnectionTraffic::CountOf(const std::string& peer,
                                                    bool only_received) const {
  std::string name = NameOf(peer);
  MutexLock lock(&mutex_);
  const auto known = peers_.find(name);
  // The kernel doesn't count the bytes of UNIX sockets.
  if (name == kUnix || known == peers_.end() || known->second.sockets.empty()) {
    return nullptr;
  }
  return [this, only_received, name = std::move(name)] {
    MutexLock lock(&mutex_);
    const auto found = peers_.find(name);
    int64_t bytes = 0;
    if (found == peers_.end()) return bytes;
    for (const int socket : found->second.sockets) {
      bytes += BytesOf(socket, name, only_received);
    }
    return bytes;
  };
}

void ConnectionTraffic::BeginCall(const std::string& peer) {
  MutexLock lock(&mutex_);
  ++peers_[NameOf(peer)].calls;
}

void ConnectionTraffic::EndCall(const std::string& peer, absl::Time now) {
  const std::string name = NameOf(peer);
  MutexLock lock(&mutex_);
  Peer& caller = peers_[name];
  --caller.calls;
  caller.last_call = now;
  Tidy(name);
}

int ConnectionTraffic::EndIdle(int most, absl::Time now) {
  MutexLock lock(&mutex_);
  // The last call of a UNIX socket counts for all of them.
  std::vector<std::tuple<absl::Time, absl::Time, int>> idle;
  for (const auto& [name, peer] : peers_) {
    if (peer.calls > 0) continue;
    for (const int socket : peer.sockets) {
      const absl::Time added_at = connections_[socket].added_at;
      const absl::Time since = std::max(added_at, peer.last_call);
      if (now - since >= kLeastIdle) idle.emplace_back(since, added_at, socket);
    }
  }
  // A heap, because to sort 100,000 connections takes 50 ms.
  std::make_heap(idle.begin(), idle.end(), std::greater<>());
  int ended = 0;
  for (auto end = idle.end(); end != idle.begin() && ended < most; --end) {
    std::pop_heap(idle.begin(), end, std::greater<>());
    const auto [since, added_at, socket] = *std::prev(end);
    // A slow client may still take the last answer from the kernel.
    if (now - since < kMostIdle && HasUnacknowledged(socket)) continue;
    if (!Shutdown(socket, connections_[socket].cookie)) continue;
    ++ended;
    Remove(socket);
  }
  return ended;
}

}  // namespace convgrad
