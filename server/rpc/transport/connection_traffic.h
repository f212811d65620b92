// `ConnectionTraffic` counts the bytes of the connections that this server
// accepted itself.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "backends/core/mutex.h"

namespace convgrad {

// gRPC reports a message only when it has all of it. The kernel counts a
// connection's bytes meanwhile (TCP_INFO). Thread-safe.
class ConnectionTraffic {
 public:
  // Returns the received bytes and those that the peer has acknowledged; 0 if
  // unknown, for example after the connection is closed.
  using Count = std::function<int64_t()>;

  // Adds the connected TCP `socket`, which may be closed at any time.
  void Add(int socket);

  // Returns the counter of the connection from `peer`, as gRPC names it
  // ("ipv4:10.0.0.7:41234"); null if it was never added.
  Count CountOf(const std::string& peer) const;
  // As CountOf, of received bytes alone.
  Count ReceivedOf(const std::string& peer) const;

 private:
  // Returns the socket of the peer that PeerOf names so, -1 if it has none.
  int SocketOf(const std::string& name) const;

  mutable Mutex mutex_;
  // The system reuses descriptors for other peers. `peers_` says which peer to
  // drop then, so that there are at most as many entries as descriptors.
  absl::flat_hash_map<std::string, int> sockets_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<int, std::string> peers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace convgrad
