#include "backends/onednn/onednn_choices.h"

#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "backends/core/status.h"

namespace convgrad::onednn {
namespace {

std::string TextOf(const StridedView& view, bool is_copied) {
  const Layout layout = view.strides[1] == 1 ? Layout::kNXC : Layout::kNCX;
  const bool is_dense =
      view.strides == Strides({view.dtype, layout, view.dims});
  return absl::AsciiStrToLower(
      absl::StrCat(NameOf(view.dtype), ":", NameOf(layout),
                   is_dense ? "" : "/strided", is_copied ? "/copied" : ""));
}

absl::string_view TextOf(Shared shared) {
  switch (shared) {
    case Shared::kData:
      return " shared=data";
    case Shared::kOut:
      return " shared=out";
    case Shared::kNothing:
      break;
  }
  return "";
}

}  // namespace

std::string KeyOf(const PassSpec& spec) {
  return absl::StrCat(NameOf(spec.pass), " ", ToString(spec.problem), " ",
                      NameOf(spec.operand_dtype),
                      " data=", TextOf(spec.data, spec.copies_data),
                      " out=", TextOf(spec.out, spec.copies_out),
                      TextOf(spec.shared), " threads=", spec.threads);
}

std::optional<Format> Choices::FindFormat(const std::string& key) const {
  MutexLock lock(&mutex_);
  const auto found = choices_.find(key);
  if (found == choices_.end()) return std::nullopt;
  return ParseFormat(found->second);
}

std::optional<Partition> Choices::FindPartition(const std::string& key) const {
  MutexLock lock(&mutex_);
  const auto found = choices_.find(key);
  if (found == choices_.end()) return std::nullopt;
  return ParsePartition(found->second);
}

bool Choices::Has(const std::string& key) const {
  MutexLock lock(&mutex_);
  return choices_.count(key) > 0;
}

void Choices::Put(std::string key, absl::string_view choice) {
  MutexLock lock(&mutex_);
  choices_.insert_or_assign(std::move(key), std::string(choice));
}

std::string Choices::ToText() const {
  MutexLock lock(&mutex_);
  std::string text;
  for (const auto& [key, choice] : choices_) {
    absl::StrAppend(&text, key, " = ", choice, "\n");
  }
  return text;
}

absl::Status Choices::AddText(absl::string_view text) {
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> parts = absl::StrSplit(line, " = ");
    if (parts.size() != 2 ||
        (!ParseFormat(parts[1]) && !ParsePartition(parts[1]))) {
      return InvalidField(Reason::kMalformed, "tuning",
                          absl::StrCat("\"", line, "\""),
                          "PASS = any, nxc or ncx, or OPERATION = a partition");
    }
    Put(parts[0], parts[1]);
  }
  return absl::OkStatus();
}

}  // namespace convgrad::onednn
