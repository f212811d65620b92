// `Listeners` owns gRPC's servers: the server for calls and the server for
// health.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/grpcpp.h"
#include "server/rpc/transport/acceptor.h"
#include "server/rpc/transport/connection_traffic.h"
#include "server/rpc/transport/credentials.h"

namespace convgrad {

struct ListenerOptions {
  std::vector<std::string> addresses;  // host:port or unix:path
  TlsFiles tls;                        // For host:port.
  std::string health_address;          // Plaintext; "": no address of its own.
  int64_t max_message_bytes = 0;       // Of payload.
  const grpc::ResourceQuota* quota = nullptr;  // Of the bytes in gRPC.
  absl::Duration max_connection_age = absl::InfiniteDuration();
  // The time after which the server closes a connection without calls. Envoy's
  // advice for an edge is at most 15 minutes.
  absl::Duration max_connection_idle = absl::Minutes(15);
  // gRPC answers reflection itself, for clients without a token as well.
  bool reflection = true;
};

// `Listeners` is thread-safe.
class Listeners {
 public:
  // Listens and serves. Adds each connection to `traffic`, and ends those
  // without calls when few descriptors are left. `generic_service` and
  // `traffic` outlive it. Errors: kInvalidArgument naming the flag.
  static absl::StatusOr<std::unique_ptr<Listeners>> Start(
      const ListenerOptions& options,
      std::vector<std::unique_ptr<grpc::Service>> services,
      grpc::CallbackGenericService* generic_service,
      ConnectionTraffic* traffic);
  // Cancels the calls in flight and blocks until each has ended.
  ~Listeners();

  // The bound addresses in the order of `options`, with port 0 resolved.
  const std::vector<std::string>& addresses() const { return calls_.addresses; }
  const std::string& health_address() const { return health_address_; }

  // Returns whether clients can connect. Call it twice a second.
  Hearing hearing() { return calls_.acceptor->hearing(); }

  // Sets the answer of grpc.health.v1 for `service`, on every socket.
  void SetServing(const std::string& service, bool serving);

 private:
  Listeners() = default;

  // A server of gRPC, with the acceptor that passes connections to it.
  struct Site {
    std::vector<std::string> addresses;  // The bound ones.
    std::unique_ptr<grpc::Server> server;
    std::unique_ptr<Acceptor> acceptor;
  };
  // Starts the server of `builder` at `addresses`, the value of `flag`. Adds
  // its connections to `traffic`. Requires: `site` has its acceptor.
  static absl::Status Open(absl::string_view flag,
                           const std::vector<std::string>& addresses,
                           const TlsFiles& tls, ConnectionTraffic* traffic,
                           grpc::ServerBuilder* builder, Site* site);

  std::vector<std::unique_ptr<grpc::Service>> services_;
  // Answers UNIMPLEMENTED. gRPC starts no server without a service.
  grpc::CallbackGenericService nothing_;
  Site calls_;
  Site health_;  // Without a server if there is no address of its own.
  std::string health_address_;
};

}  // namespace convgrad
