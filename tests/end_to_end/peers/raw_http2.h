// `RawHttp2` is a hand-written HTTP/2 client. It does what no gRPC client does:
// it sends a part of a message and stops, leaves answers unread, or opens too
// many calls.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "tests/end_to_end/peers/raw_connection.h"

namespace convgrad {

// One connection. Drops bytes that can't be sent any more. Thread-compatible.
class RawHttp2 {
 public:
  // Connects to host:port on this host, as RawConnection. The server may send
  // `window` bytes of each answer.
  explicit RawHttp2(const std::string& address, uint32_t window = 65535,
                    const std::string& from = "127.0.0.1");

  // Returns whether the server's settings arrive, which are the first frame of
  // HTTP/2.
  bool AwaitSettings() { return !connection_.Read(1).empty(); }
  // Acknowledges the server's settings, so that they are in effect.
  void AcknowledgeSettings();
  // As in RawConnection.
  void EndSending() { connection_.EndSending(); }
  bool AwaitEnd() { return connection_.AwaitEnd(); }

  // Starts a call of `path`, e.g. "/convgrad.v1.ConvGrad/ConvBackward", and
  // returns its stream.
  uint32_t Open(const std::string& path,
                const std::map<std::string, std::string>& metadata = {});
  // Sends the beginning of a message of `size` bytes.
  void BeginMessage(uint32_t stream, uint32_t size);
  // Sends a whole message.
  void SendMessage(uint32_t stream, const std::string& message);
  // Sends bytes of the message. All streams together may send 64 KiB.
  void Send(uint32_t stream, const std::string& bytes);
  // Half-closes the stream.
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
