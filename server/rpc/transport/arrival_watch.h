// `ArrivalWatch` bounds what each connection may still send.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "backends/core/mutex.h"
#include "server/rpc/transport/connection_traffic.h"

namespace convgrad {

// `ArrivalWatch` ends calls whose connection sends more than its calls have
// declared.
//
// gRPC 1.51 has no limit that it checks before it has a whole message, and one
// quota for all connections: a client that declares nothing and sends 64 MiB
// takes memory that other clients' calls are then broken off for. The kernel
// counts what a connection has received. While messages of a connection are
// being read, it may send what they are expected to have, and kUnreadBytes.
// Thread-safe.
class ArrivalWatch {
 public:
  // What a connection may send beyond its messages: the window of each of its
  // streams (Listeners), HTTP/2's own frames, and TLS.
  static constexpr int64_t kUnreadBytes = int64_t{256} << 16;

  // Ends a call. `is_only_one`: no other message of the connection was being
  // read. May be called until shortly after Settle, on another thread: mustn't
  // touch the call itself.
  using BreakOff = std::function<void(bool is_only_one)>;

  // `traffic` outlives this; null: nothing is watched.
  explicit ArrivalWatch(const ConnectionTraffic* traffic) : traffic_(traffic) {}

  // Lets `peer` send a message of up to `bytes` from now on. Returns an id for
  // Settle; 0 if the bytes of its connection aren't counted.
  uint64_t Expect(const std::string& peer, int64_t bytes, BreakOff break_off);
  // The message has come, or won't come.
  void Settle(uint64_t id);

  // Ends the calls of connections that have sent too much. To be called
  // regularly: what comes between two calls isn't held up.
  void Look();

 private:
  struct Message {
    std::string peer;
    int64_t bytes;
    BreakOff break_off;
  };
  // A connection with messages that are being read.
  struct Connection {
    ConnectionTraffic::Count received;
    int messages = 0;
    // Of those messages.
    int64_t expected_bytes = 0;
    // What it may have received at most.
    int64_t limit_bytes = 0;
  };

  const ConnectionTraffic* const traffic_;
  Mutex mutex_;
  uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<uint64_t, Message> messages_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, Connection> connections_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace convgrad
