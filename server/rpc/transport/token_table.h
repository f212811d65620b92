// Who the clients are: names, roles and tokens from a file.
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
  // Reads one client a line, "NAME ROLE TOKEN". Empty lines and those that
  // begin with # don't count. A name may have several tokens.
  // Errors: kInvalidArgument naming the line, never its token.
  static absl::StatusOr<TokenTable> Parse(absl::string_view text);

  // Returns whose token this is; the time that takes says nothing about it.
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
