// TCP sockets that listen at addresses as users write them.
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

// Listens at host:port; port 0 is any that is free, 0.0.0.0 and [::] are all of
// this machine's addresses, of either family.
// Errors: kUnavailable with the system's word for it.
absl::StatusOr<ListeningSockets> ListenAt(const std::string& address);

// Returns the connected socket's other end, e.g. "10.0.0.7:41234" or
// "[::1]:41234"; "?" if it has gone.
std::string PeerOf(int socket);

}  // namespace convgrad
