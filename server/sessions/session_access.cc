#include "server/sessions/session_access.h"

#include <openssl/rand.h>

#include <algorithm>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "proto/sha256.h"

namespace convgrad {
namespace {

// Bytes of the budget that a session takes beside its names: its objects and
// table entries.
constexpr int64_t kSessionBytes = 4096;

// The key contains the client's size, so that keys of different clients differ.
std::string KeyOf(const std::string& client, const std::string& rest) {
  return absl::StrCat(client.size(), ":", client, rest);
}

}  // namespace

std::string OpenKeyOf(const KeptSession::Settings& settings) {
  return KeyOf(settings.client, settings.open_id);
}

std::string NameKeyOf(const KeptSession::Settings& settings) {
  const bool has_key = !settings.name.empty() && !settings.owner.empty();
  return has_key ? KeyOf(settings.client, settings.name) : "";
}

int64_t BookkeepingBytes(const KeptSession::Settings& settings) {
  // The session, a key and the value of another key each hold the name as a
  // string.
  auto bytes = kSessionBytes + 3 * std::ssize(settings.name);
  for (const std::string& reader : settings.readers) {
    bytes += static_cast<int64_t>(reader.size() + sizeof(reader));
  }
  return bytes;
}

std::string NewSessionId() {
  std::string id(kSessionIdBytes, '\0');
  RAND_bytes(reinterpret_cast<unsigned char*>(id.data()), kSessionIdBytes);
  return id;
}

std::string HashOf(const std::string& id) {
  return absl::BytesToHexString(Sha256Of(id));
}

std::string HandleOf(const std::string& id) {
  return HashOf(id).substr(0, kHandleDigits);
}

bool IsOwner(const SessionCaller& caller, const KeptSession& session) {
  const std::string& owner = session.settings().owner;
  return owner.empty() || (caller.has_identity && owner == caller.client);
}

absl::Status OwnersAlone() {
  return MakeError(
      absl::StatusCode::kPermissionDenied,
      {Reason::kForbidden, "session", "one of its readers",
       "the client that has opened it: readers list tensors and compute "
       "forwards"});
}

bool IsReader(const SessionCaller& caller, const KeptSession& session) {
  const std::vector<std::string>& readers = session.settings().readers;
  return caller.has_identity && std::find(readers.begin(), readers.end(),
                                          caller.client) != readers.end();
}

}  // namespace convgrad
