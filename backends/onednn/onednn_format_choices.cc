#include "backends/onednn/onednn_format_choices.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "backends/core/status.h"

namespace convgrad::onednn {
namespace {

std::string TextOf(const StridedView& view, bool is_copied) {
  return absl::StrCat(NameOf(view.dtype), ":",
                      view.strides[1] == 1 ? "nxc" : "ncx",
                      is_copied ? "/copied" : "");
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

std::optional<Format> FormatChoices::Find(const std::string& key) const {
  MutexLock lock(&mutex_);
  const auto found = formats_.find(key);
  if (found == formats_.end()) return std::nullopt;
  return found->second;
}

void FormatChoices::Put(std::string key, Format format) {
  MutexLock lock(&mutex_);
  formats_.insert_or_assign(std::move(key), format);
}

std::string FormatChoices::ToText() const {
  MutexLock lock(&mutex_);
  std::string text;
  for (const auto& [key, format] : formats_) {
    absl::StrAppend(&text, key, " = ", NameOf(format), "\n");
  }
  return text;
}

absl::Status FormatChoices::AddText(absl::string_view text) {
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> parts = absl::StrSplit(line, " = ");
    const auto format =
        parts.size() == 2 ? ParseFormat(parts[1]) : std::nullopt;
    if (!format) {
      return InvalidField(Reason::kMalformed, "tuning",
                          absl::StrCat("\"", line, "\""),
                          "PASS = any, nxc or ncx");
    }
    Put(parts[0], *format);
  }
  return absl::OkStatus();
}

}  // namespace convgrad::onednn
