// These functions decide who may use a session: a client that knows its id, its
// owner, or a reader.
//
// Thread-safe: free functions without state.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "server/sessions/session.h"

namespace convgrad {

// `SessionCaller` is the client that asks for a session.
struct SessionCaller {
  // The name under which limits count the client: that of its token or
  // certificate, otherwise its host.
  std::string client;
  // Whether `client` is the name of a token or certificate.
  bool has_identity = false;
  bool is_admin = false;
};

// Bytes of a session's id, and of the random id of an open request.
inline constexpr size_t kSessionIdBytes = 16;

// Returns a random id. A client that knows the id of a session without an owner
// may use the session.
std::string NewSessionId();

// Returns the text that identifies a session in lists without revealing its id.
std::string HandleOf(const std::string& id);

// Returns whether the caller has all rights to the session.
bool IsOwner(const SessionCaller& caller, const KeptSession& session);

// Returns whether the session names the caller as one of its readers.
bool IsReader(const SessionCaller& caller, const KeptSession& session);

// Returns the error for a reader that asks for a right of the owner.
absl::Status OwnersAlone();

}  // namespace convgrad
