// `CuttingProxy` is a TCP proxy on this host that cuts connections where a test
// wants it.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace convgrad {

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
  // bytes in this direction. That byte doesn't arrive.
  void CutAfter(Direction direction, int64_t bytes);
  bool is_armed() const { return remaining_[0] >= 0 || remaining_[1] >= 0; }
  int64_t cuts() const { return cuts_; }

 private:
  struct Link {
    int client;
    int server;
  };

  void Run();
  void Accept();
  // Forwards bytes. Returns false if the link has ended.
  bool Pass(int from, int to, Direction direction);

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
