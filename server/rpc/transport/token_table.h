// `TokenTable` holds the clients of a token file: names, roles and tokens.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace convgrad {

// The role of a client. Each role includes the rights of the roles before it.
enum class ClientRole {
  kInfer,  // Forwards and GetCapabilities.
  kTrain,  // Backwards and sessions as well.
  kAdmin,  // All calls, such as Warmup.
};

// Returns "infer", "train" or "admin".
absl::string_view NameOf(ClientRole role);

struct Principal {
  std::string name;
  ClientRole role = ClientRole::kInfer;
};

// `TokenTable` is immutable. It keeps digests, not tokens.
class TokenTable {
 public:
  // Parses one client a line, "NAME ROLE TOKEN". Ignores empty lines and lines
  // that begin with #. A name may have several tokens, but a token only one
  // line. Names are printable ASCII, because metrics and lists show them.
  // Errors: kInvalidArgument naming the line, never its token.
  static absl::StatusOr<TokenTable> Parse(absl::string_view text);

  // Returns the owner of `token`, in a time that doesn't depend on `token`.
  std::optional<Principal> Find(absl::string_view token) const;

 private:
  struct Entry {
    std::string digest;  // The SHA-256.
    Principal principal;
  };

  std::vector<Entry> entries_;
};

}  // namespace convgrad
