// A connection that says what no library would.
#pragma once

#include <string>

namespace convgrad {

class RawConnection {
 public:
  // Connects to `port` of this host.
  explicit RawConnection(int port);
  ~RawConnection();
  RawConnection(RawConnection&& other) noexcept;
  RawConnection& operator=(RawConnection&&) = delete;

  bool is_open() const { return file_ >= 0; }
  void Send(const std::string& bytes);
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

// What an HTTP/2 client begins with.
std::string Http2Preface();
// That the server's settings count from now on.
std::string Http2Acknowledgement();
// A call of gRPC, as one that isn't answered yet: the header block alone, or
// with all of `message` and nothing more to come.
std::string Http2Header(int stream, const std::string& path);
std::string Http2Call(int stream, const std::string& path,
                      const std::string& message);

}  // namespace convgrad
