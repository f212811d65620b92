#include "server/sessions/session_access.h"

#include <openssl/evp.h>
#include <openssl/rand.h>

#include <algorithm>
#include <vector>

#include "absl/strings/escaping.h"
#include "backends/core/status.h"

namespace convgrad {

std::string NewSessionId() {
  std::string id(kSessionIdBytes, '\0');
  RAND_bytes(reinterpret_cast<unsigned char*>(id.data()), kSessionIdBytes);
  return id;
}

std::string HandleOf(const std::string& id) {
  std::string hash(EVP_MAX_MD_SIZE, '\0');
  EVP_Digest(id.data(), id.size(),
             reinterpret_cast<unsigned char*>(hash.data()), nullptr,
             EVP_sha256(), nullptr);
  return absl::BytesToHexString(hash.substr(0, 8));
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
