// `Gate` authenticates clients, checks their roles, and limits the calls and
// bytes that each client has in flight.
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

// Limits of what one client may have in flight; 0: no limit.
struct ClientLimits {
  int calls = 0;
  int64_t bytes = 0;
};

class Gate;

// `CallPermit` is the permission of the gate for one call. It names the client
// and its role, and counts the call and its bytes in the client's account until
// it is destroyed. Owned by one thread at a time.
class CallPermit {
 public:
  CallPermit() = default;
  CallPermit(CallPermit&& other) noexcept { *this = std::move(other); }
  CallPermit& operator=(CallPermit&& other) noexcept;
  ~CallPermit();

  // Sets the bytes that the call holds.
  // Errors: kResourceExhausted, reason BUSY if the client holds too many now,
  // LIMIT_EXCEEDED if `bytes` alone are too many.
  absl::Status Hold(int64_t bytes);

  // The name of the client's token or certificate; otherwise its host.
  const std::string& client() const { return client_; }
  // Whether the name comes from a token or a certificate.
  bool has_identity() const { return has_identity_; }
  // The role of the client.
  ClientRole role() const { return role_; }

 private:
  friend class Gate;
  CallPermit(Gate* gate, Principal principal, bool has_identity)
      : gate_(gate),
        client_(std::move(principal.name)),
        has_identity_(has_identity),
        role_(principal.role) {}

  Gate* gate_ = nullptr;
  std::string client_;
  bool has_identity_ = false;
  ClientRole role_ = ClientRole::kInfer;
  int64_t bytes_ = 0;
};

// `Gate` is thread-safe.
class Gate {
 public:
  // Requires a token of `table` from each later call.
  void SetTokens(TokenTable table);
  // Sets the limits of later calls.
  void SetLimits(const ClientLimits& limits);

  // Authenticates the client, checks that it has at least `role`, and counts
  // its call.
  // Errors: kUnauthenticated; kPermissionDenied; kResourceExhausted, reason
  // BUSY, if the client has too many calls.
  absl::StatusOr<CallPermit> Enter(const grpc::ServerContextBase& context,
                                   ClientRole role);

 private:
  friend class CallPermit;
  struct Account {
    int calls = 0;
    int64_t bytes = 0;
  };

  mutable Mutex mutex_;
  // Null: every client may do everything.
  std::shared_ptr<const TokenTable> tokens_ ABSL_GUARDED_BY(mutex_);
  ClientLimits limits_ ABSL_GUARDED_BY(mutex_);
  // The accounts of clients with calls in flight.
  absl::flat_hash_map<std::string, Account> accounts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace convgrad
