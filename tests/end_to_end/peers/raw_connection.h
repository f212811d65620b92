// A connection that sends what no library would.
#pragma once

#include <string>

namespace convgrad {

// Closed when this ends. Thread-compatible.
class RawConnection {
 public:
  // Connects to `port` of this host, from an address that this host has:
  // 127.0.0.2, for example, is another client than 127.0.0.1.
  explicit RawConnection(int port, const std::string& from = "127.0.0.1");
  ~RawConnection();
  RawConnection(RawConnection&& other) noexcept;
  RawConnection& operator=(RawConnection&&) = delete;

  // Returns how many bytes the kernel took before the other end closed.
  size_t Send(const std::string& bytes);
  // Closes this end for sending; what was sent still arrives.
  void EndSending();
  // Returns what comes until the other end closes, or until nothing has come
  // for ten seconds; at most `limit` bytes.
  std::string Read(size_t limit);
  // Returns whether the other end closes before it has been silent for ten
  // seconds.
  bool AwaitEnd();

 private:
  int file_;
};

// Returns the port of host:port.
int PortOf(const std::string& address);

}  // namespace convgrad
