// `ListenAt` opens TCP sockets that listen at an address in the form of
// --listen.
#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/file_descriptor.h"

namespace convgrad {

struct ListeningSockets {
  // One non-blocking socket for each address of the host, all with one port.
  std::vector<FileDescriptor> sockets;
  int port = 0;
};

// Listens at host:port. Port 0 means any free port; 0.0.0.0 and [::] mean all
// addresses of this machine, of both families. Thread-safe.
// Errors: kUnavailable with the system's message.
absl::StatusOr<ListeningSockets> ListenAt(const std::string& address);

// Checks that a UNIX socket can be made at `path`, which may be the socket of a
// process that has ended. gRPC would take the path from a process that listens
// there. Thread-safe.
// Errors: kUnavailable with the system's message.
absl::Status CheckSocketPath(absl::string_view path);

// Returns the peer of a connected socket, e.g. "10.0.0.7:41234" or
// "[::1]:41234"; "?" if the peer has left. Thread-safe.
std::string PeerOf(int socket);

}  // namespace convgrad
