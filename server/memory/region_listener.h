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
  std::string path;  // Of the UNIX socket.
  // Peers of this user and root get regions; the listener refuses others.
  uid_t owner = 0;
  // The most connections. Each has at most one region.
  int max_connections = 64;
  // The time for a connection's whole request.
  absl::Duration request_timeout = absl::Seconds(5);
};

// `RegionListener` serves proto/region_handshake.h: a connection gets one
// region, which exists as long as the connection. One thread of its own does
// all work, so a large region delays only other regions. Thread-compatible.
class RegionListener {
 public:
  // Starts to listen. Replaces a socket that an ended server left at the path,
  // but no file of another type. `registry` outlives the listener.
  // Errors: kInvalidArgument for a path that can't be listened on;
  // kFailedPrecondition as CheckOvercommit.
  static absl::StatusOr<std::unique_ptr<RegionListener>> Start(
      const RegionListenerOptions& options, RegionRegistry* registry);

  // Closes every connection, ends their regions and removes the socket.
  virtual ~RegionListener() = default;
};

// Checks `overcommit_memory`, the content of /proc/sys/vm/overcommit_memory.
// Returns an error if the kernel may refuse a page that existed before: a
// client could punch a hole into its region, and the server's next access would
// end in SIGBUS.
// Errors: kFailedPrecondition.
absl::Status CheckOvercommit(absl::string_view overcommit_memory);

}  // namespace convgrad
