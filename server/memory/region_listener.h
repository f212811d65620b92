// `RegionListener` serves the side socket on which clients of this host get
// shared memory.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/memory/region_registry.h"

namespace convgrad {

struct RegionListenerOptions {
  std::string path;  // of the UNIX socket
  // Peers of this user, and root, get regions; others are refused.
  uid_t owner = 0;
  // More are refused. Each has at most one region.
  int max_connections = 64;
  // For a connection's whole request.
  absl::Duration request_timeout = absl::Seconds(5);
};

// Serves proto/region_handshake.h: a connection gets one region, which exists
// as long as the connection. A thread of its own does all of it, so a large
// region delays other regions and nothing else.
class RegionListener {
 public:
  // Listens. Replaces a socket that a dead server left at the path, but no file
  // of another type.
  // `registry` outlives the listener.
  // Errors: kInvalidArgument for a path that can't be listened on;
  // kFailedPrecondition as CheckOvercommit.
  static absl::StatusOr<std::unique_ptr<RegionListener>> Start(
      const RegionListenerOptions& options, RegionRegistry* registry);

  // Closes every connection, ends their regions and removes the socket.
  virtual ~RegionListener() = default;
};

// Returns an error if `overcommit_memory`, what /proc/sys/vm has of that name,
// lets the kernel refuse a page that was there before: a client could punch a
// hole into its region, and the server's next access would be a SIGBUS.
// Errors: kFailedPrecondition.
absl::Status CheckOvercommit(absl::string_view overcommit_memory);

}  // namespace convgrad
