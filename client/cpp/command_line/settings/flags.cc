#include "client/cpp/command_line/settings/flags.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/codec/codec.h"

namespace convgrad {

absl::Span<const FlagEntry> AllFlags() {
  static const auto& backends =
      *new std::string(absl::StrJoin(BackendNames(), " "));
  static const FlagEntry kFlags[] = {
      {"server"},
      {"ca", kFiles},
      {"cert", kFiles},
      {"key", kFiles},
      {"token", kFiles},
      {"region"},
      {"timeout"},
      {"traceparent"},
      {"priority", "batch interactive"},
      {"backend", backends},
      {"deterministic", kSwitch},
      {"dtype", "f32 bf16 f16"},
      {"layout", "NCX NXC NDC1HWC0"},
      {"weight_layout", "OIX OXI XIO FRACTAL_Z_3D"},
      {"result_dtype", "f32 bf16 f16"},
      {"result_layout", "NCX NXC NDC1HWC0 OIX OXI XIO FRACTAL_Z_3D"},
      {"scale"},
      {"gradients", "grad_input grad_weight grad_bias grad_residual"},
      {"seed"},
      {"integers", kSwitch},
      {"operands", kFiles},
      {"input", kFiles},
      {"weight", kFiles},
      {"bias", kFiles},
      {"residual", kFiles},
      {"grad_output", kFiles},
      {"output", kFiles},
      {"out", kFiles},
      {"json", kSwitch},
      {"everybody", kSwitch},
      {"close"},
      {"check", kSwitch},
      {"self_check", kSwitch},
      {"count_nonfinite", kSwitch},
      {"slice_items"},
      {"direction", "backward forward"},
      {"repeat"},
      {"warmup"},
      {"metrics"},
      {"interval"},
      {"count"}};
  return kFlags;
}

std::vector<absl::string_view> WordsOf(absl::string_view flag) {
  const auto entry = std::find_if(
      AllFlags().begin(), AllFlags().end(),
      [&](const FlagEntry& candidate) { return candidate.name == flag; });
  return absl::StrSplit(entry->values, ' ');
}

std::string AlternativesOf(absl::string_view flag) {
  std::vector<absl::string_view> words = WordsOf(flag);
  const absl::string_view last = words.back();
  words.pop_back();
  return absl::StrCat(absl::StrJoin(words, ", "), " or ", last);
}

}  // namespace convgrad
