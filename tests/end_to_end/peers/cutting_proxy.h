// `CuttingProxy` is a proxy on this host that cuts HTTP/2 connections where a
// test wants it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace convgrad {

// Finds the bytes of calls in one direction of an HTTP/2 connection: the
// payloads of DATA, HEADERS and CONTINUATION frames. All others are the
// connection's own (settings, pings, windows), which gRPC sends when it likes.
class CallBytes {
 public:
  // `preface`: bytes before the first frame.
  explicit CallBytes(int64_t preface) : left_(preface) {}

  // Returns whether the connection's next byte belongs to a call.
  bool Take(char byte);

 private:
  // Bytes left of the preface or of a frame's payload.
  int64_t left_;
  bool is_call_ = false;
  std::array<uint8_t, 9> header_;
  size_t header_bytes_ = 0;
};

// `CuttingProxy` is thread-safe.
class CuttingProxy {
 public:
  enum class Direction { kToServer, kToClient };

  // Listens on a free port and forwards all connections to `server`,
  // "127.0.0.1:PORT". Aborts if it can't.
  explicit CuttingProxy(const std::string& server);
  ~CuttingProxy();

  const std::string& address() const { return address_; }

  // From now on nothing passes on the existing connections, and none of them
  // ends, as if the server had lost its power. New connections work.
  void Freeze();

  // Cuts, once, the connection that carries the byte after the next `bytes`
  // bytes of calls (CallBytes) in this direction. That byte doesn't arrive. 0:
  // cuts at the next request or reply.
  void CutAfter(Direction direction, int64_t bytes);
  bool is_armed() const { return remaining_[0] >= 0 || remaining_[1] >= 0; }
  int64_t cuts() const { return cuts_; }

 private:
  struct Link {
    int client;
    int server;
    // By direction. A client's preface has 24 bytes (RFC 9113, 3.4).
    std::array<CallBytes, 2> calls = {CallBytes(24), CallBytes(0)};
  };

  void Run();
  void Accept();
  // Forwards bytes. Returns false if the link has ended.
  bool Pass(Direction direction, Link* link);

  std::string address_;
  int server_port_;
  int listener_;
  std::atomic<bool> stops_{false};
  std::atomic<bool> freezes_{false};
  // By direction; -1: no cut.
  std::atomic<int64_t> remaining_[2] = {-1, -1};
  std::atomic<int64_t> cuts_{0};
  std::vector<Link> links_;
  std::vector<Link> frozen_;
  std::thread thread_;
};

}  // namespace convgrad
