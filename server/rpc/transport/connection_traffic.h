// `ConnectionTraffic` counts the bytes and the calls of the connections that
// this server accepted itself, and ends connections without calls.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "backends/core/mutex.h"

namespace convgrad {

// gRPC reports a message only when it has come as a whole. The kernel counts
// the bytes of a connection meanwhile (TCP_INFO). Thread-safe.
class ConnectionTraffic {
 public:
  // A client may need this time to take the last answer from the kernel.
  static constexpr absl::Duration kLeastIdle = absl::Seconds(5);

  // Returns the sum of the received bytes and the bytes that the peer has
  // acknowledged; 0 if unknown, for example after the connection is closed.
  using Count = std::function<int64_t()>;

  // Adds the connected `socket`, which may be closed at any time.
  void Add(int socket, absl::Time now);

  // Returns the counter of the TCP connection from `peer`, as gRPC names it
  // ("ipv4:10.0.0.7:41234"); null if it was never added. Counts only received
  // bytes if `only_received`. A peer may have a connection to each address at
  // which the server listens; then it returns their sum. Valid as long as this.
  Count CountOf(const std::string& peer, bool only_received = false) const;

  // Count a call of `peer`, as gRPC names it. All UNIX sockets have one name,
  // so a call of one counts for all of them.
  void BeginCall(const std::string& peer);
  void EndCall(const std::string& peer, absl::Time now);

  // Ends up to `most` connections that have had no call for kLeastIdle, or for
  // a minute if the peer hasn't acknowledged all bytes, those without calls for
  // the longest time first. gRPC then closes their sockets. Returns how many it
  // ended.
  int EndIdle(int most, absl::Time now);

 private:
  struct Connection {
    std::string peer;
    // The kernel's number of the socket, because the system reuses descriptors;
    // 0 if unknown.
    uint64_t cookie;
    absl::Time added_at;
  };
  struct Peer {
    std::set<int> sockets;
    int calls = 0;
    absl::Time last_call = absl::InfinitePast();  // Its end.
  };

  void Remove(int socket) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Removes a peer without connections and calls.
  void Tidy(const std::string& peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  // By descriptor. The entry of a connection that gRPC has closed stays until
  // the descriptor is reused, so there are at most as many as descriptors.
  absl::flat_hash_map<int, Connection> connections_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, Peer> peers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace convgrad
