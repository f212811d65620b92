// Which peer's TLS handshake failed, and why. gRPC 1.51 knows neither in any
// interface: its own line names no peer, and of a certificate that isn't
// accepted it says only that. So OpenSSL is asked, which gRPC uses.
#pragma once

#include <string>

namespace convgrad {

// While it lives, the TLS objects that this thread makes are `peer`'s: if their
// handshake fails, it is logged with that name (LogRefusal). Owned by one
// thread, one at a time.
class HandshakesOf {
 public:
  explicit HandshakesOf(std::string peer);
  ~HandshakesOf();
  HandshakesOf(const HandshakesOf&) = delete;
  HandshakesOf& operator=(const HandshakesOf&) = delete;

 private:
  const std::string peer_;
};

// Has gRPC's own log lines come with the server's, but for those that tell of a
// failed handshake without its peer. For the whole process.
void TakeGrpcLog();

}  // namespace convgrad
