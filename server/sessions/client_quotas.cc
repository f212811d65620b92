#include "server/sessions/client_quotas.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

absl::Status TooMuch(const std::string& client, const std::string& found,
                     const std::string& expected) {
  return LimitExceeded(absl::StrCat("client '", client, "'"), found, expected);
}

}  // namespace

absl::Status ClientQuotas::AddSession(const std::string& client,
                                      bool is_limited) {
  MutexLock lock(&mutex_);
  Account& account = accounts_[client];
  if (is_limited && limits_.sessions > 0 &&
      account.sessions >= limits_.sessions) {
    return TooMuch(client, absl::StrCat(account.sessions, " open sessions"),
                   absl::StrCat("at most ", limits_.sessions,
                                ", the server's --max_client_sessions"));
  }
  ++account.sessions;
  return absl::OkStatus();
}

void ClientQuotas::RemoveSession(const std::string& client) {
  MutexLock lock(&mutex_);
  const auto found = accounts_.find(client);
  if (--found->second.sessions == 0) accounts_.erase(found);
}

absl::Status ClientQuotas::Exchange(const std::string& client,
                                    int64_t old_bytes, int64_t new_bytes) {
  MutexLock lock(&mutex_);
  Account& account = accounts_[client];
  const int64_t bytes = account.bytes - old_bytes + new_bytes;
  if (new_bytes > old_bytes && limits_.kept_bytes > 0 &&
      bytes > limits_.kept_bytes) {
    return TooMuch(client, absl::StrCat(bytes, " bytes in all of its sessions"),
                   absl::StrCat("at most ", limits_.kept_bytes,
                                ", the server's --max_client_kept_bytes"));
  }
  account.bytes = bytes;
  return absl::OkStatus();
}

std::vector<ClientQuotas::Use> ClientQuotas::Uses() const {
  std::vector<Use> uses;
  {
    MutexLock lock(&mutex_);
    for (const auto& [client, account] : accounts_) {
      if (account.sessions == 0) continue;
      uses.push_back({client, account.sessions, account.bytes});
    }
  }
  std::sort(uses.begin(), uses.end(), [](const Use& one, const Use& other) {
    return std::tie(other.kept_bytes, one.client) <
           std::tie(one.kept_bytes, other.client);
  });
  return uses;
}

}  // namespace convgrad
