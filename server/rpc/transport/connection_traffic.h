// How many bytes have come and gone on the connections that this server
// accepted itself.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "backends/core/mutex.h"

namespace convgrad {

// gRPC tells nothing of a message until it has the whole of it; the kernel
// counts a connection's bytes meanwhile (TCP_INFO). Thread-safe.
class ConnectionTraffic {
 public:
  // Returns how many bytes have come, and of those sent have been acknowledged;
  // 0 if that isn't known, as once the connection is closed.
  using Count = std::function<int64_t()>;

  // Knows the connected TCP `socket` from now on. It may be closed at any time.
  void Add(int socket);

  // Returns what counts the bytes of the connection from `peer`, as gRPC names
  // it ("ipv4:10.0.0.7:41234"); null if that was never added.
  Count CountOf(const std::string& peer) const;
  // As CountOf, without those that were sent.
  Count ReceivedOf(const std::string& peer) const;

 private:
  // Returns the socket of the peer that PeerOf names so, -1 if it has none.
  int SocketOf(const std::string& name) const;

  mutable Mutex mutex_;
  // A descriptor that is used anew stands for another peer: `peers_` tells
  // which one to forget, so that there are at most as many as descriptors.
  absl::flat_hash_map<std::string, int> sockets_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<int, std::string> peers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace convgrad
