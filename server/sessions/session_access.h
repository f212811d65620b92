// These functions decide who may use a session (a client that knows its id, its
// owner, or a reader) and how a table finds it.
//
// Thread-safe: free functions without state.
#pragma once

#include <cstddef>
#include <cstdint>
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

// Digits of the text that identifies a session in lists.
inline constexpr size_t kHandleDigits = 16;

// Returns a random id. A client that knows the id of a session without an owner
// may use the session.
std::string NewSessionId();

// Returns the text that identifies a session on disk without revealing its id:
// 64 hexadecimal digits, the SHA-256 of the id.
std::string HashOf(const std::string& id);
// Returns the text that identifies a session in lists: the first 16 digits of
// its hash.
std::string HandleOf(const std::string& id);

// Returns the keys under which a table finds a session by its open id, and by
// its name. The name's key is "" if it has none or its client has no identity.
std::string OpenKeyOf(const KeptSession::Settings& settings);
std::string NameKeyOf(const KeptSession::Settings& settings);

// Returns the bytes of the budget that a session takes without its contents.
int64_t BookkeepingBytes(const KeptSession::Settings& settings);

// Returns whether the caller has all rights to the session.
bool IsOwner(const SessionCaller& caller, const KeptSession& session);

// Returns whether the session names the caller as one of its readers.
bool IsReader(const SessionCaller& caller, const KeptSession& session);

// Returns the error for a reader that asks for a right of the owner.
absl::Status OwnersAlone();

}  // namespace convgrad
