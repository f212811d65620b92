#include "server/sessions/kept_state.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

constexpr size_t kMaxNameBytes = 255;

// Writes `writes` into `kept`, null dropping what has the name.
template <typename Writes, typename Kept>
void Replace(const Writes& writes, Kept* kept, int64_t* quota_bytes) {
  for (const auto& [name, written] : writes) {
    const auto old = kept->find(name);
    if (old != kept->end()) {
      *quota_bytes -= old->second->quota_bytes();
      kept->erase(old);
    }
    if (written == nullptr) continue;
    kept->emplace(name, written);
    *quota_bytes += written->quota_bytes();
  }
}

}  // namespace

KeptState After(const KeptState& state, const KeptWrites& writes) {
  KeptState after = state;
  ++after.number;
  Replace(writes.programs, &after.programs, &after.quota_bytes);
  Replace(writes.tapes, &after.tapes, &after.quota_bytes);
  for (const auto& [name, tensor] : writes.tensors) {
    const auto old = after.tensors.find(name);
    if (old != after.tensors.end()) {
      after.quota_bytes -= old->second.quota_bytes();
      after.tensors.erase(old);
    }
    if (!tensor) continue;
    KeptTensor& written = after.tensors.emplace(name, *tensor).first->second;
    written.version = after.number;
    after.quota_bytes += written.quota_bytes();
  }
  return after;
}

absl::Status CheckName(absl::string_view name, absl::string_view field) {
  if (name.empty() || name.size() > kMaxNameBytes) {
    return InvalidField(Reason::kOutOfRange, field,
                        absl::StrCat("a name of ", name.size(), " bytes"),
                        absl::StrCat("1 to ", kMaxNameBytes, " bytes"));
  }
  const bool is_plain = std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isprint(c) && c != '/' && c != '\\';
  });
  if (is_plain) return absl::OkStatus();
  return InvalidField(Reason::kMalformed, field,
                      absl::StrCat("'", absl::CHexEscape(name), "'"),
                      "printable ASCII without / and \\");
}

}  // namespace convgrad
