// Who may come in, and how much one client may hold at once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/core/mutex.h"
#include "grpcpp/server_context.h"
#include "server/rpc/transport/token_table.h"

namespace convgrad {

// What one client may have under way; 0: no limit.
struct ClientLimits {
  int calls = 0;
  int64_t bytes = 0;
};

class Gate;

// A call of a client that was let in; ends with this object. Owned by one
// thread.
class Visit {
 public:
  Visit() = default;
  Visit(Visit&& other) noexcept { *this = std::move(other); }
  Visit& operator=(Visit&& other) noexcept;
  ~Visit();

  // Counts `bytes` against the client's, in place of what the call had.
  // Errors: kResourceExhausted, reason BUSY, or LIMIT_EXCEEDED if that never
  // fits.
  absl::Status Hold(int64_t bytes);

  // Of its token or certificate, otherwise its host.
  const std::string& client() const { return client_; }
  // Whether that is a token's or a certificate's name.
  bool has_identity() const { return has_identity_; }
  // What the client may do.
  Role role() const { return role_; }

 private:
  friend class Gate;
  Visit(Gate* gate, Principal principal, bool has_identity)
      : gate_(gate),
        client_(std::move(principal.name)),
        has_identity_(has_identity),
        role_(principal.role) {}

  Gate* gate_ = nullptr;
  std::string client_;
  bool has_identity_ = false;
  Role role_ = Role::kInfer;
  int64_t bytes_ = 0;
};

// Thread-safe.
class Gate {
 public:
  // From now on a token of `table` is asked for.
  void SetTokens(TokenTable table);
  void SetLimits(const ClientLimits& limits);

  // Checks who calls, and whether that client may do what needs `role`.
  // Errors: kUnauthenticated; kPermissionDenied; kResourceExhausted, reason
  // BUSY, if the client has too many calls.
  absl::StatusOr<Visit> Enter(const grpc::ServerContextBase& context,
                              Role role);

 private:
  friend class Visit;
  struct Account {
    int calls = 0;
    int64_t bytes = 0;
  };

  absl::StatusOr<Visit> Open(Principal principal, bool has_identity);
  absl::Status Exchange(const std::string& client, int64_t old_bytes,
                        int64_t new_bytes);
  void Close(const std::string& client, int64_t bytes);

  mutable Mutex mutex_;
  // Null: everybody may do everything.
  std::shared_ptr<const TokenTable> tokens_ ABSL_GUARDED_BY(mutex_);
  ClientLimits limits_ ABSL_GUARDED_BY(mutex_);
  // Of clients with calls under way.
  absl::flat_hash_map<std::string, Account> accounts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace convgrad
