// Decides who may use a session: by its id, as its owner, or as a reader.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "server/sessions/session.h"

namespace convgrad {

// The client that asks for a session.
struct SessionCaller {
  // The name that limits count by: a token's or a certificate's, else a host.
  std::string client;
  // Whether `client` is a token's or a certificate's name.
  bool has_identity = false;
  bool is_admin = false;
};

// Bytes of a session's id, and of the random id that an open carries.
inline constexpr size_t kSessionIdBytes = 16;

// Returns a random id. Who knows the id of a session without an owner may use
// the session. Thread-safe.
std::string NewSessionId();

// Returns the text that lists show for a session, which doesn't reveal its id.
std::string HandleOf(const std::string& id);

// Returns whether the caller may do everything in the session.
bool IsOwner(const SessionCaller& caller, const KeptSession& session);

// Returns whether the session names the caller as one of its readers.
bool IsReader(const SessionCaller& caller, const KeptSession& session);

// Returns the error for a reader that asks for what only the owner may do.
absl::Status OwnersAlone();

}  // namespace convgrad
