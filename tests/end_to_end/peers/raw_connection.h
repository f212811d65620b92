// `RawConnection` is a TCP connection that sends bytes that no library would
// send.
#pragma once

#include <string>

namespace convgrad {

// The destructor closes the connection. Thread-compatible.
class RawConnection {
 public:
  // Connects to `port` of this host, from the local address `from`. 127.0.0.2,
  // for example, is another client than 127.0.0.1.
  explicit RawConnection(int port, const std::string& from = "127.0.0.1");
  ~RawConnection();
  RawConnection(RawConnection&& other) noexcept;
  RawConnection& operator=(RawConnection&&) = delete;

  // Returns how many bytes the kernel took before the other end closed.
  size_t Send(const std::string& bytes);
  // Closes this end for sending. The sent bytes still arrive.
  void EndSending();
  // Returns the bytes that arrive until the other end closes, or until no byte
  // has arrived for ten seconds; at most `limit` bytes.
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
