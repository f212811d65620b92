#include "server/rpc/transport/gate.h"

#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

constexpr char kTokenKey[] = "authorization";
constexpr absl::string_view kScheme = "bearer ";

absl::string_view View(const grpc::string_ref& text) {
  return absl::string_view(text.data(), text.size());
}

absl::StatusOr<Principal> Authenticate(const grpc::ServerContextBase& context,
                                       const TokenTable& tokens) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(kTokenKey);
  absl::string_view problem = "nothing";
  if (found != metadata.end()) {
    absl::string_view value = View(found->second);
    problem = "another scheme";
    if (absl::StartsWithIgnoreCase(value, kScheme)) {
      value.remove_prefix(kScheme.size());
      const std::optional<Principal> principal = tokens.Find(value);
      if (principal) return *principal;
      problem = "an unknown token";
    }
  }
  return MakeError(absl::StatusCode::kUnauthenticated,
                   {Reason::kUnauthenticated, kTokenKey, std::string(problem),
                    "'Bearer ' and a token that this server knows"});
}

// Returns the name in the client's certificate; "" if it has no certificate or
// a nameless one. All nameless certificates would be one client.
std::string NameOfCertificate(const grpc::ServerContextBase& context) {
  const auto security = context.auth_context();
  if (security == nullptr || !security->IsPeerAuthenticated()) return "";
  return std::string(View(security->GetPeerIdentity().front()));
}

// Returns a name for a client without a token and without a certificate's name.
std::string HostOf(const grpc::ServerContextBase& context) {
  // ipv4:HOST:PORT, ipv6:%5bHOST%5d:PORT or unix:
  const std::string peer = context.peer();
  return peer.substr(0, peer.rfind(':'));
}

absl::Status TooMuch(Reason reason, const std::string& client,
                     absl::string_view found, absl::string_view limit) {
  return MakeError(
      absl::StatusCode::kResourceExhausted,
      {reason, absl::StrCat("client '", client, "'"),
       absl::StrCat(found, " under way"), absl::StrCat("at most ", limit)});
}

}  // namespace

CallPermit& CallPermit::operator=(CallPermit&& other) noexcept {
  std::swap(gate_, other.gate_);
  std::swap(client_, other.client_);
  std::swap(has_identity_, other.has_identity_);
  std::swap(role_, other.role_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

CallPermit::~CallPermit() {
  if (gate_ == nullptr) return;
  MutexLock lock(&gate_->mutex_);
  const auto found = gate_->accounts_.find(client_);
  found->second.bytes -= bytes_;
  if (--found->second.calls == 0) gate_->accounts_.erase(found);
}

absl::Status CallPermit::Hold(int64_t bytes) {
  if (gate_ == nullptr) return absl::OkStatus();
  MutexLock lock(&gate_->mutex_);
  Gate::Account& account = gate_->accounts_[client_];
  const int64_t most = gate_->limits_.bytes;
  const int64_t others = account.bytes - bytes_;
  if (most > 0 && bytes > most) {
    return TooMuch(Reason::kLimitExceeded, client_,
                   absl::StrCat(bytes, " bytes for one call"),
                   absl::StrCat(most));
  }
  if (most > 0 && others + bytes > most) {
    return TooMuch(Reason::kBusy, client_,
                   absl::StrCat(others, " bytes, and ", bytes, " more"),
                   absl::StrCat(most));
  }
  account.bytes = others + bytes;
  bytes_ = bytes;
  return absl::OkStatus();
}

void Gate::SetTokens(TokenTable table) {
  MutexLock lock(&mutex_);
  tokens_ = std::make_shared<const TokenTable>(std::move(table));
}

void Gate::SetLimits(const ClientLimits& limits) {
  MutexLock lock(&mutex_);
  limits_ = limits;
}

absl::StatusOr<CallPermit> Gate::Enter(const grpc::ServerContextBase& context,
                                       ClientRole role) {
  std::shared_ptr<const TokenTable> tokens;
  {
    MutexLock lock(&mutex_);
    tokens = tokens_;
  }
  Principal principal{"", ClientRole::kAdmin};
  bool has_identity = true;
  if (tokens != nullptr) {
    ASSIGN_OR_RETURN(principal, Authenticate(context, *tokens));
  } else {
    const std::string name = NameOfCertificate(context);
    has_identity = !name.empty();
    principal.name =
        has_identity ? absl::StrCat("certificate ", name) : HostOf(context);
  }
  if (principal.role < role) {
    return MakeError(
        absl::StatusCode::kPermissionDenied,
        {Reason::kForbidden, absl::StrCat(kTokenKey, ".role"),
         std::string(NameOf(principal.role)), std::string(NameOf(role))});
  }
  MutexLock lock(&mutex_);
  Account& account = accounts_[principal.name];
  if (limits_.calls > 0 && account.calls >= limits_.calls) {
    return TooMuch(Reason::kBusy, principal.name,
                   absl::StrCat(account.calls, " calls"),
                   absl::StrCat(limits_.calls));
  }
  ++account.calls;
  return CallPermit(this, std::move(principal), has_identity);
}

}  // namespace convgrad
