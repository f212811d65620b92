#include "server/rpc/transport/token_table.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "openssl/crypto.h"
#include "proto/sha256.h"

namespace convgrad {
namespace {

constexpr ClientRole kRoles[] = {ClientRole::kInfer, ClientRole::kTrain,
                                 ClientRole::kAdmin};

// A client could guess shorter tokens.
constexpr size_t kMinTokenSize = 16;

std::optional<ClientRole> ParseRole(absl::string_view name) {
  const auto* const found =
      std::find_if(std::begin(kRoles), std::end(kRoles),
                   [name](ClientRole role) { return NameOf(role) == name; });
  if (found == std::end(kRoles)) return std::nullopt;
  return *found;
}

}  // namespace

absl::string_view NameOf(ClientRole role) {
  constexpr absl::string_view kNames[] = {"infer", "train", "admin"};
  return kNames[static_cast<size_t>(role)];
}

absl::StatusOr<TokenTable> TokenTable::Parse(absl::string_view text) {
  TokenTable table;
  std::map<std::string, int> lines;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || absl::StartsWith(line, "#")) continue;
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipWhitespace());
    const std::string field = absl::StrCat("--token_file line ", number);
    if (words.size() != 3) {
      return Malformed(field, absl::StrCat(words.size(), " words"),
                       "NAME ROLE TOKEN");
    }
    const std::optional<ClientRole> role = ParseRole(words[1]);
    if (!role) {
      return InvalidEnum(field, "another role", "infer, train or admin");
    }
    if (words[2].size() < kMinTokenSize) {
      return OutOfRange(
          field, absl::StrCat("a token of ", words[2].size(), " characters"),
          absl::StrCat("at least ", kMinTokenSize));
    }
    if (!absl::c_all_of(words[0], absl::ascii_isprint)) {
      return Malformed(field,
                       absl::StrCat("the name ", absl::CHexEscape(words[0])),
                       "printable ASCII");
    }
    const std::string digest = Sha256Of(words[2]);
    const auto [earlier, is_new] = lines.try_emplace(digest, number);
    if (!is_new) {
      return InvalidField(Reason::kDuplicate, field,
                          absl::StrCat("the token of line ", earlier->second),
                          "a token of its own");
    }
    table.entries_.push_back({digest, {std::string(words[0]), *role}});
  }
  return table;
}

std::optional<Principal> TokenTable::Find(absl::string_view token) const {
  const std::string digest = Sha256Of(token);
  const Entry* found = nullptr;
  // Compares all entries as a whole, so that the time reveals neither the
  // position of a token nor how much of it matches.
  for (const Entry& entry : entries_) {
    if (CRYPTO_memcmp(entry.digest.data(), digest.data(), digest.size()) == 0) {
      found = &entry;
    }
  }
  if (found == nullptr) return std::nullopt;
  return found->principal;
}

}  // namespace convgrad
