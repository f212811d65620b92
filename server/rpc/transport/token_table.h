// `TokenTable` holds the clients of a token file: names, roles and tokens.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace convgrad {

// What a client may do; each role may do what those before it may.
enum class Role {
  kInfer,  // forwards, and asking what the server can do
  kTrain,  // backwards
  kAdmin,  // everything, such as warm-up
};

// Returns "infer", "train" or "admin".
absl::string_view NameOf(Role role);

struct Principal {
  std::string name;
  Role role = Role::kInfer;
};

// Immutable. Keeps digests, not tokens.
class TokenTable {
 public:
  // Reads one client a line, "NAME ROLE TOKEN". Ignores empty lines and those
  // that begin with #. A name may have several tokens. Errors: kInvalidArgument
  // naming the line, never its token.
  static absl::StatusOr<TokenTable> Parse(absl::string_view text);

  // Returns the owner of `token`, in a time that doesn't depend on it.
  std::optional<Principal> Find(absl::string_view token) const;

 private:
  using Digest = std::array<uint8_t, 32>;
  struct Entry {
    Digest digest;
    Principal principal;
  };
  static Digest DigestOf(absl::string_view token);

  std::vector<Entry> entries_;
};

}  // namespace convgrad
