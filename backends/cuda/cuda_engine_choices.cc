#include "backends/cuda/cuda_engine_choices.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "backends/core/status.h"

namespace convgrad::cuda {

std::string KeyOf(const GraphSpec& spec, absl::string_view device) {
  return absl::StrCat(NameOf(spec.pass), " ", ToString(spec.problem), " ",
                      NameOf(spec.operands), ">", NameOf(spec.result), " ",
                      NameOf(spec.format), spec.bias ? "+bias" : "", " on ",
                      device);
}

std::optional<std::string> EngineChoices::Find(const std::string& key) const {
  MutexLock lock(&mutex_);
  const auto found = engines_.find(key);
  if (found == engines_.end()) return std::nullopt;
  return found->second;
}

void EngineChoices::Put(std::string key, std::string engine) {
  MutexLock lock(&mutex_);
  engines_.insert_or_assign(std::move(key), std::move(engine));
}

std::string EngineChoices::ToText() const {
  MutexLock lock(&mutex_);
  std::string text;
  for (const auto& [key, engine] : engines_) {
    absl::StrAppend(&text, key, " = ", engine, "\n");
  }
  return text;
}

absl::Status EngineChoices::AddText(absl::string_view text) {
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> parts = absl::StrSplit(line, " = ");
    if (parts.size() != 2 || parts[1].empty()) {
      return InvalidField(Reason::kMalformed, "tuning",
                          absl::StrCat("\"", line, "\""), "GRAPH = ENGINE");
    }
    Put(parts[0], parts[1]);
  }
  return absl::OkStatus();
}

}  // namespace convgrad::cuda
