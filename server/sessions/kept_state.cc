#include "server/sessions/kept_state.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"

namespace convgrad {
namespace {

int64_t QuotaBytes(const KeptTensor& tensor) { return tensor.quota_bytes(); }
template <typename T>
int64_t QuotaBytes(const std::shared_ptr<const T>& kept) {
  return kept->quota_bytes();
}

// Adds the effect of `writes` on `kept` to `*totals` and `*count`.
template <typename Writes, typename Kept>
void Count(const Writes& writes, const Kept& kept, int64_t* count,
           KeptTotals* totals) {
  const auto add = [&](absl::string_view name, int64_t sign, int64_t bytes) {
    const int64_t entry_bytes = kEntryBytes + std::ssize(name);
    *count += sign;
    totals->entry_bytes += sign * entry_bytes;
    totals->quota_bytes += sign * (entry_bytes + bytes);
  };
  for (const auto& [name, written] : writes) {
    const auto old = kept.find(name);
    if (old != kept.end()) add(name, -1, QuotaBytes(old->second));
    if (written) add(name, 1, written->quota_bytes());
  }
}

int64_t SizeOf(const std::shared_ptr<const std::string>& text) {
  return text == nullptr ? 0 : std::ssize(*text);
}

// Applies `writes` to `kept`. A null value drops the name.
template <typename Writes, typename Kept>
void Replace(const Writes& writes, Kept* kept) {
  for (const auto& [name, written] : writes) {
    kept->erase(name);
    if (written != nullptr) kept->emplace(name, written);
  }
}

bool OnlyDropsTapes(const KeptWrites& writes) {
  return writes.tensors.empty() && writes.programs.empty() &&
         writes.trainer_state == nullptr &&
         std::all_of(writes.tapes.begin(), writes.tapes.end(),
                     [](const auto& tape) { return tape.second == nullptr; });
}

}  // namespace

KeptTotals TotalsAfter(const KeptState& state, const KeptWrites& writes) {
  KeptTotals totals = state.totals;
  Count(writes.tensors, state.tensors, &totals.tensors, &totals);
  Count(writes.programs, state.programs, &totals.programs, &totals);
  Count(writes.tapes, state.tapes, &totals.tapes, &totals);
  if (writes.trainer_state != nullptr) {
    const int64_t more =
        SizeOf(writes.trainer_state) - SizeOf(state.trainer_state);
    totals.entry_bytes += more;
    totals.quota_bytes += more;
  }
  return totals;
}

KeptState After(const KeptState& state, const KeptWrites& writes) {
  KeptState after = state;
  after.totals = TotalsAfter(state, writes);
  after.paid = nullptr;
  after.computed_by = writes.computed_by;
  ++after.number;
  // Trainers drop the tape of a step when the step is over.
  if (state.trainer_state_number == state.number && OnlyDropsTapes(writes)) {
    after.trainer_state_number = after.number;
  }
  Replace(writes.programs, &after.programs);
  Replace(writes.tapes, &after.tapes);
  if (writes.trainer_state != nullptr) {
    after.trainer_state =
        writes.trainer_state->empty() ? nullptr : writes.trainer_state;
    after.trainer_state_number = after.number;
  }
  for (const auto& [name, tensor] : writes.tensors) {
    after.tensors.erase(name);
    if (!tensor) continue;
    after.tensors.emplace(name, *tensor).first->second.version = after.number;
  }
  return after;
}

KeptState WithoutTapes(const KeptState& state) {
  KeptWrites writes;
  for (const auto& [name, tape] : state.tapes) writes.tapes[name] = nullptr;
  KeptState after = After(state, writes);
  after.number = state.number;
  after.trainer_state_number = state.trainer_state_number;
  after.computed_by = state.computed_by;
  return after;
}

KeptWrites WritesToRestore(const KeptState& state, const KeptState& wanted) {
  KeptWrites writes;
  for (const auto& [name, tensor] : state.tensors) {
    writes.tensors[name] = std::nullopt;
  }
  for (const auto& [name, tensor] : wanted.tensors) {
    writes.tensors[name] = tensor;
  }
  for (const auto& [name, program] : wanted.programs) {
    writes.programs[name] = program;
  }
  for (const auto& [name, tape] : state.tapes) writes.tapes[name] = nullptr;
  writes.trainer_state = wanted.trainer_state != nullptr
                             ? wanted.trainer_state
                             : std::make_shared<const std::string>();
  writes.computed_by = wanted.computed_by;
  return writes;
}

bool IsResumable(const KeptState& state) {
  return state.tapes.empty() && (state.trainer_state == nullptr ||
                                 state.trainer_state_number == state.number);
}

absl::Status CheckName(absl::string_view name, absl::string_view field,
                       size_t most) {
  if (name.empty() || name.size() > most) {
    return OutOfRange(field, absl::StrCat("a name of ", name.size(), " bytes"),
                      absl::StrCat("1 to ", most, " bytes"));
  }
  const bool is_plain = std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isprint(c) && c != '/' && c != '\\';
  });
  if (is_plain) return absl::OkStatus();
  return Malformed(field, absl::StrCat("'", absl::CHexEscape(name), "'"),
                   "printable ASCII without / and \\");
}

}  // namespace convgrad
