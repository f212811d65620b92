// `ListenAt` opens TCP sockets that listen at an address as users write it.
#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/file_descriptor.h"

namespace convgrad {

struct ListeningSockets {
  // One for each address of the host's, all of one port. Non-blocking.
  std::vector<FileDescriptor> sockets;
  int port = 0;
};

// Listens at host:port. Port 0 is any free port; 0.0.0.0 and [::] are all
// addresses of this machine, of both families. Thread-safe.
// Errors: kUnavailable with the system's message.
absl::StatusOr<ListeningSockets> ListenAt(const std::string& address);

// Returns the peer of a connected socket, e.g. "10.0.0.7:41234" or
// "[::1]:41234";
// "?" if it has gone. Thread-safe.
std::string PeerOf(int socket);

}  // namespace convgrad
