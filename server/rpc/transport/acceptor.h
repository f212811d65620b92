// `Acceptor` accepts TCP connections for gRPC. gRPC's own listener names
// neither the peer nor the reason of a failed connection. It also never accepts
// again after one accept has failed (1.51; grpc issue 16058).
#pragma once

#include <functional>
#include <list>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/file_descriptor.h"

namespace convgrad {

// `Acceptor` passes a connection to gRPC when its first byte has come and fits
// the protocol: TLS, or HTTP/2 in plaintext. A client of the other protocol
// gets an HTTP/1.1 answer that says so, and the log names the client. The
// acceptor closes a silent connection after the time that gRPC waits for a
// handshake, or when it needs the descriptor.
//
// One thread of its own does all work. Thread-compatible.
class Acceptor {
 public:
  // Takes ownership of a connected socket.
  using Take = std::function<void(int socket)>;

  Acceptor(bool speaks_tls, absl::Duration patience);
  // Stops the thread.
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // Binds host:port and returns the port. Connections wait until Start.
  // Errors: those of ListenAt.
  absl::StatusOr<int> Listen(const std::string& address);

  // Starts the thread, which calls `take`. Call it once, after the last Listen.
  void Start(Take take);

 private:
  struct Waiting {
    FileDescriptor socket;
    absl::Time accepted_at;
  };

  void Run();
  absl::Duration UntilNextChore(absl::Time now) const;
  void AcceptAll(int listener, absl::Time now);
  // Frees a descriptor, or stops listening for a while. Returns whether another
  // accept may succeed.
  bool MakeRoom(absl::Time now);
  void SetListening(bool listening);
  void Look(int socket);
  // Closes the connection that has waited for the longest time. Requires: one
  // waits.
  void DropFirst();

  const bool speaks_tls_;
  const absl::Duration patience_;
  Take take_;
  const FileDescriptor poll_;
  const FileDescriptor stop_;
  std::vector<FileDescriptor> listeners_;
  // The connections that have sent nothing, in the order of acceptance.
  std::list<Waiting> waiting_;
  std::unordered_map<int, std::list<Waiting>::iterator> by_socket_;
  absl::Time resume_at_ = absl::InfiniteFuture();
  absl::Time complain_at_ = absl::InfinitePast();
  std::thread thread_;
};

}  // namespace convgrad
