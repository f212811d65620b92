// `ClientQuotas` limits the sessions of each client and the bytes that they
// keep.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "backends/core/mutex.h"

namespace convgrad {

// `ClientQuotas` is thread-safe.
class ClientQuotas {
 public:
  // Limits of one client; 0: no limit.
  struct Limits {
    int sessions = 0;
    int64_t kept_bytes = 0;
  };

  explicit ClientQuotas(Limits limits) : limits_(limits) {}

  // Counts a session of `client`.
  // Errors: kResourceExhausted, reason LIMIT_EXCEEDED, if `is_limited` and the
  // client has as many sessions as it may have.
  absl::Status AddSession(const std::string& client, bool is_limited = true);
  void RemoveSession(const std::string& client);

  // Replaces `old_bytes` by `new_bytes` in the client's account.
  // Errors: kResourceExhausted, reason LIMIT_EXCEEDED, if `new_bytes` is larger
  // and exceeds the client's limit.
  absl::Status Exchange(const std::string& client, int64_t old_bytes,
                        int64_t new_bytes);

  // The sessions and bytes of one client.
  struct Use {
    std::string client;
    int sessions = 0;
    int64_t kept_bytes = 0;
  };
  // Returns the clients with sessions, ordered by kept bytes, the largest
  // first.
  std::vector<Use> Uses() const;

 private:
  struct Account {
    int sessions = 0;
    int64_t bytes = 0;
  };

  const Limits limits_;
  mutable Mutex mutex_;
  // Accounts of the clients that have sessions.
  absl::flat_hash_map<std::string, Account> accounts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace convgrad
