// `ArrivalWatch` ends calls whose connection sends more than its calls have
// declared.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "backends/core/mutex.h"
#include "server/rpc/transport/connection_traffic.h"

namespace convgrad {

// gRPC 1.51 checks no limit before it has a whole message, and has one memory
// quota for all connections. So a client that declares nothing and sends 64 MiB
// would make gRPC cancel the calls of other clients. The kernel counts the
// bytes that a connection has received. While calls read messages of a
// connection, it may send their expected bytes and kUnreadBytes. Thread-safe.
class ArrivalWatch {
 public:
  // Bytes that a connection may send beyond its messages: the window of each of
  // its streams (see Listeners), HTTP/2's own frames, and TLS.
  static constexpr int64_t kUnreadBytes = int64_t{256} << 16;

  // Ends a call. `is_only_one`: no other call was reading a message of the
  // connection. Look may call it until shortly after Settle, on another thread,
  // so it must not use the call itself.
  using BreakOff = std::function<void(bool is_only_one)>;

  // `traffic` outlives this.
  explicit ArrivalWatch(const ConnectionTraffic* traffic) : traffic_(traffic) {}

  // Allows `peer` to send a message of up to `bytes` from now on. Returns an id
  // for Settle; 0 if the bytes of its connection aren't counted.
  uint64_t Expect(const std::string& peer, int64_t bytes, BreakOff break_off);
  // Ends the wait for the message. Call it when the message has come, or won't
  // come.
  void Settle(uint64_t id);

  // Ends the calls of connections that have sent too much. Call it regularly:
  // it can't stop the bytes that come between two calls.
  void Look();

 private:
  struct Message {
    std::string peer;
    int64_t bytes;
    BreakOff break_off;
  };
  // A connection whose calls are reading messages.
  struct Connection {
    ConnectionTraffic::Count received;
    int messages = 0;
    // The expected bytes of those messages.
    int64_t expected_bytes = 0;
    // The most bytes that the connection may have received.
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
