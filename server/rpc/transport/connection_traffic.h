// `ConnectionTraffic` counts the bytes of the connections that this server
// accepted itself.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "backends/core/mutex.h"

namespace convgrad {

// gRPC reports a message only when it has come as a whole. The kernel counts
// the bytes of a connection meanwhile (TCP_INFO). Thread-safe.
class ConnectionTraffic {
 public:
  // Returns the sum of the received bytes and the bytes that the peer has
  // acknowledged; 0 if unknown, for example after the connection is closed.
  using Count = std::function<int64_t()>;

  // Adds the connected TCP `socket`, which may be closed at any time.
  void Add(int socket);

  // Returns the counter of the connection from `peer`, as gRPC names it
  // ("ipv4:10.0.0.7:41234"); null if it was never added. Counts only received
  // bytes if `only_received`. A peer may have a connection to each address at
  // which the server listens; then it returns their sum. Valid as long as this.
  Count CountOf(const std::string& peer, bool only_received = false) const;

 private:
  mutable Mutex mutex_;
  // The system reuses descriptors for other peers. `peers_` says which peer to
  // remove then, so that there are at most as many entries as descriptors.
  absl::flat_hash_map<std::string, std::set<int>> sockets_
      ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<int, std::string> peers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace convgrad
