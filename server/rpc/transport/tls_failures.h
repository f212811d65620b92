// `HandshakesOf` names the peer and the reason of a failed TLS handshake in the
// log. gRPC 1.51 reports neither, so it asks OpenSSL, which gRPC uses.
#pragma once

#include <string>

namespace convgrad {

// While this exists, TLS objects that this thread makes belong to `peer`. If
// their handshake fails, LogRefusal logs it with that name. Owned by one
// thread, which has one at a time.
class HandshakesOf {
 public:
  explicit HandshakesOf(std::string peer);
  ~HandshakesOf();
  HandshakesOf(const HandshakesOf&) = delete;
  HandshakesOf& operator=(const HandshakesOf&) = delete;

 private:
  const std::string peer_;
};

// Sends the log lines of gRPC and protobuf to the server's log, except lines
// that report a failed handshake without its peer. Affects the whole process.
void TakeLibraryLogs();

}  // namespace convgrad
