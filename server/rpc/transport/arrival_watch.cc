#include "server/rpc/transport/arrival_watch.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "proto/codec/payload_message.h"

namespace convgrad {

uint64_t ArrivalWatch::Expect(const std::string& peer, int64_t bytes,
                              BreakOff break_off) {
  // On the wire: the payload, the head, and the overhead of HTTP/2 frames (9
  // bytes in 16 KiB) and TLS records (29 bytes in 16 KiB).
  const int64_t expected = bytes + bytes / 64 + kMaxHeadBytes;
  MutexLock lock(&mutex_);
  Connection& connection = connections_[peer];
  if (connection.messages == 0) {
    connection.received = traffic_->CountOf(peer, /*only_received=*/true);
    if (connection.received == nullptr) {
      connections_.erase(peer);
      return 0;
    }
    connection.limit_bytes = connection.received() + kUnreadBytes;
  }
  ++connection.messages;
  connection.expected_bytes += expected;
  connection.limit_bytes += expected;
  messages_.emplace(++last_id_, Message{peer, expected, std::move(break_off)});
  return last_id_;
}

void ArrivalWatch::Settle(uint64_t id) {
  if (id == 0) return;
  MutexLock lock(&mutex_);
  const auto message = messages_.find(id);
  if (message == messages_.end()) return;
  const auto connection = connections_.find(message->second.peer);
  connection->second.expected_bytes -= message->second.bytes;
  if (--connection->second.messages == 0) connections_.erase(connection);
  messages_.erase(message);
}

void ArrivalWatch::Look() {
  std::vector<std::pair<BreakOff, bool>> overrun;
  {
    MutexLock lock(&mutex_);
    absl::flat_hash_map<std::string, int> ended;
    for (auto& [peer, connection] : connections_) {
      const int64_t received = connection.received();
      if (received > connection.limit_bytes) {
        ended[peer] = connection.messages;
      }
      // Bytes that a message declared but didn't use don't count for the next
      // messages.
      connection.limit_bytes =
          std::min(connection.limit_bytes,
                   received + connection.expected_bytes + kUnreadBytes);
    }
    if (ended.empty()) return;
    absl::erase_if(messages_, [&](auto& entry) {
      const auto found = ended.find(entry.second.peer);
      if (found == ended.end()) return false;
      overrun.emplace_back(std::move(entry.second.break_off),
                           found->second == 1);
      return true;
    });
    for (const auto& [peer, messages] : ended) connections_.erase(peer);
  }
  for (const auto& [break_off, is_only_one] : overrun) break_off(is_only_one);
}

}  // namespace convgrad
