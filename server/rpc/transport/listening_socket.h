// `ListenAt` opens sockets that listen at an address in the form of --listen.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/file_descriptor.h"

namespace convgrad {

struct ListeningSockets {
  // One non-blocking socket for each address of the host, all with one port.
  std::vector<FileDescriptor> sockets;
  int port = 0;      // 0 for a UNIX socket.
  std::string path;  // The file of a UNIX socket.
};

// Listens at host:port, unix:path or unix-abstract:name. Port 0 means any free
// port; 0.0.0.0 and [::] mean all addresses of this machine, of both families.
// The path may be that of a socket whose process has ended. Thread-safe.
// Errors: kUnavailable with the system's message.
absl::StatusOr<ListeningSockets> ListenAt(const std::string& address);

// Returns the peer of a connected socket, e.g. "10.0.0.7:41234" or
// "[::1]:41234", "unix" for a UNIX socket; "?" if the peer has left.
// Thread-safe.
std::string PeerOf(int socket);

}  // namespace convgrad
