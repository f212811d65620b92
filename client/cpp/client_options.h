// Where a client connects, and how.
#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "client/cpp/calls/retries.h"

namespace convgrad {

struct ClientOptions {
  // "HOST:PORT" or "unix:PATH"; several, with commas between them, are used in
  // turn, and one that was unavailable is left out for a second. One of gRPC's
  // names, e.g. "dns:///NAME:PORT", may stand for several addresses.
  std::string server;
  // Paths of PEM files: authorities that the server's certificate must come
  // from (empty: plaintext), and the client's own certificate (empty: none).
  std::string ca = {};
  std::string cert = {};
  std::string key = {};
  // Expected in the server's certificate instead of the address's host.
  std::string server_name = {};
  // As the server's --token_file has it; empty: none. Goes over TLS, or to this
  // host, only.
  std::string token = {};
  // Whether and how calls that failed for the moment are sent again, within
  // their deadline. Empty: they aren't.
  std::optional<RetryPolicy> retries = std::nullopt;
  // To each server; calls use them in turn. One connection carries some 100
  // calls at a time, and decrypts or copies on one core.
  int connections = 1;
  // How many calls of RunAsync and Submit are under way at once; others wait.
  int async_calls = 16;
  // A connection on which a call waits and nothing has come for so long is
  // asked by a ping, and given up if the answer takes as long again (20 s at
  // most); its calls end UNAVAILABLE. The server takes pings from every 10 s
  // on. What stands between, with gRPC's own limit of 5 minutes, may end the
  // connection; gRPC then doubles the time.
  absl::Duration keepalive = absl::Seconds(20);
};

}  // namespace convgrad
