// `ClientOptions` says where a client connects and with which credentials,
// retries and timeouts.
#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "client/cpp/calls/retries.h"

namespace convgrad {

// Value type. Client::Connect and Session::Open validate it.
struct ClientOptions {
  // "HOST:PORT" or "unix:PATH". Takes several, separated by commas, in turn
  // and skips an unavailable one for a second. A name in gRPC's
  // syntax, e.g. "dns:///NAME:PORT", may stand for several addresses.
  std::string server;
  // Paths of PEM files. `ca` holds the authorities that may have signed the
  // server's certificate (empty: plaintext). `cert` and `key` hold the client's
  // own certificate (empty: none).
  std::string ca = {};
  std::string cert = {};
  std::string key = {};
  // Name expected in the server's certificate; empty: the address's host.
  std::string server_name = {};
  // Token as in the server's --token_file; empty: none. The client sends it
  // only over TLS or to this host.
  std::string token = {};
  // Policy by which the client repeats calls that failed temporarily, within
  // their deadline. Empty: it doesn't repeat them.
  std::optional<RetryPolicy> retries = std::nullopt;
  // Connections to each server; calls use them in turn. One connection carries
  // about 100 concurrent calls and decrypts or copies on one core.
  int connections = 1;
  // Number of RunAsync and Submit calls that run at once; others queue.
  int async_calls = 16;
  // Keepalive interval, at least 1 s. If a call waits and nothing has arrived
  // for this long, the client sends a ping. If no answer arrives within the
  // same time (at most 20 s), it closes the connection and its calls end
  // UNAVAILABLE. The server accepts a ping every 10 s. A proxy with gRPC's
  // default limit of 5 minutes may close the connection; gRPC then doubles the
  // interval.
  absl::Duration keepalive = absl::Seconds(20);
};

}  // namespace convgrad
