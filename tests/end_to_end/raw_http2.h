// A client that speaks HTTP/2 by hand, to do what no gRPC client does: send a
// part of a message and stop, or leave its answers unread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace convgrad {

// One connection, closed when this ends. Reads nothing. Aborts if it can't
// connect or write. Not thread-safe.
class RawHttp2 {
 public:
  // Connects to host:port on this host. The server may send `window` bytes of
  // each answer.
  explicit RawHttp2(const std::string& address, uint32_t window = 65535);
  ~RawHttp2();
  RawHttp2(const RawHttp2&) = delete;
  RawHttp2& operator=(const RawHttp2&) = delete;

  // Begins a call of `method`, e.g. "ConvBackward", and returns its stream.
  uint32_t Open(const std::string& method,
                const std::map<std::string, std::string>& metadata = {});
  // Begins a message of `size` bytes.
  void BeginMessage(uint32_t stream, uint32_t size);
  // Sends bytes of it, 16 KiB at most; all streams together may send 64 KiB.
  void Send(uint32_t stream, const std::string& bytes);
  // Half-closes.
  void Finish(uint32_t stream);

 private:
  void SendFrame(uint8_t type, uint8_t flags, uint32_t stream,
                 const std::string& payload);

  int socket_;
  uint32_t next_stream_ = 1;
};

}  // namespace convgrad
