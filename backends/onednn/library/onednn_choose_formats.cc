#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "backends/onednn/library/onednn_candidates.h"
#include "backends/onednn/library/onednn_cost_model.h"

namespace convgrad::onednn {
namespace {

// The library has plain loops in f32 for every pass, but none if a stride, a
// padding or a dimension of the lowered problem doesn't fit an int.
absl::Status NoImplementation(const PassSpec& spec) {
  return Unsupported(
      "operation",
      absl::StrCat(NameOf(spec.pass), " ", ToString(spec.problem), " in ",
                   NameOf(spec.operand_dtype)),
      "a convolution that oneDNN has");
}

// Returns the candidates for one pass: only the preferred format if there is
// one. Changes the pass to f32 if the library can't compute it otherwise.
absl::StatusOr<std::vector<Candidate>> Eligible(
    const FormatPreference& preference, PassSpec* spec) {
  ASSIGN_OR_RETURN(std::vector<Candidate> candidates, ListCandidates(*spec));
  if (candidates.empty() && spec->operand_dtype != DataType::kF32) {
    *spec = InF32(std::move(*spec));
    ASSIGN_OR_RETURN(candidates, ListCandidates(*spec));
  }
  if (candidates.empty()) return NoImplementation(*spec);
  const std::optional<Format> preferred = preference(*spec);
  for (Candidate& candidate : candidates) {
    if (candidate.format == preferred) {
      return std::vector<Candidate>{std::move(candidate)};
    }
  }
  return candidates;
}

const dnnl::memory::desc& SharedDesc(const PassSpec& spec,
                                     const Candidate& candidate) {
  return spec.shared == Shared::kData ? candidate.data : candidate.out;
}

// Returns the time that a second pass saves after the first.
double SavedSeconds(const PassSpec& spec, const Candidate& first,
                    const Candidate& second) {
  return SharedDesc(spec, first) == SharedDesc(spec, second)
             ? PredictSharedSeconds(spec, second)
             : 0;
}

}  // namespace

absl::StatusOr<std::vector<Candidate>> ChooseFormats(
    std::vector<PassSpec> specs, const FormatPreference& preference) {
  std::vector<std::vector<Candidate>> eligible;
  std::vector<Candidate> chosen;
  for (PassSpec& spec : specs) {
    ASSIGN_OR_RETURN(std::vector<Candidate> candidates,
                     Eligible(preference, &spec));
    const auto fastest =
        std::min_element(candidates.begin(), candidates.end(),
                         [](const Candidate& a, const Candidate& b) {
                           return a.predicted_seconds < b.predicted_seconds;
                         });
    chosen.push_back(*fastest);
    eligible.push_back(std::move(candidates));
  }
  if (chosen.size() != 2 || specs[0].shared == Shared::kNothing) {
    return chosen;
  }
  double fastest = std::numeric_limits<double>::infinity();
  for (const Candidate& first : eligible[0]) {
    for (const Candidate& second : eligible[1]) {
      const double seconds = first.predicted_seconds +
                             second.predicted_seconds -
                             SavedSeconds(specs[1], first, second);
      if (seconds >= fastest) continue;
      fastest = seconds;
      chosen[0] = first;
      chosen[1] = second;
    }
  }
  return chosen;
}

}  // namespace convgrad::onednn
