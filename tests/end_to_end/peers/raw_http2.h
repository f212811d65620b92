// A client that speaks HTTP/2 by hand, to do what no gRPC client does: send a
// part of a message and stop, leave its answers unread, or have too many calls.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "tests/end_to_end/peers/raw_connection.h"

namespace convgrad {

// One connection. What can't be sent any more is dropped. Thread-compatible.
class RawHttp2 {
 public:
  // Connects to host:port on this host, as RawConnection. The server may send
  // `window` bytes of each answer.
  explicit RawHttp2(const std::string& address, uint32_t window = 65535,
                    const std::string& from = "127.0.0.1");

  // Returns whether the server's settings come, which HTTP/2 begins with.
  bool AwaitSettings() { return !connection_.Read(1).empty(); }
  // Has the server's settings count from now on.
  void AcknowledgeSettings();
  // As RawConnection.
  void EndSending() { connection_.EndSending(); }
  bool AwaitEnd() { return connection_.AwaitEnd(); }

  // Begins a call of `path`, e.g. "/convgrad.v1.ConvGrad/ConvBackward", and
  // returns its stream.
  uint32_t Open(const std::string& path,
                const std::map<std::string, std::string>& metadata = {});
  // Begins a message of `size` bytes.
  void BeginMessage(uint32_t stream, uint32_t size);
  // Sends a whole message.
  void SendMessage(uint32_t stream, const std::string& message);
  // Sends bytes of it; all streams together may send 64 KiB.
  void Send(uint32_t stream, const std::string& bytes);
  // Half-closes.
  void Finish(uint32_t stream);
  // Cancels the call.
  void Reset(uint32_t stream);

 private:
  void SendFrame(uint8_t type, uint8_t flags, uint32_t stream,
                 const std::string& payload);

  RawConnection connection_;
  uint32_t next_stream_ = 1;
};

}  // namespace convgrad
