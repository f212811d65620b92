#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "backends/onednn/onednn_candidates.h"
#include "backends/onednn/onednn_cost_model.h"

namespace convgrad::onednn {
namespace {

absl::Status NoImplementation(const PassSpec& spec) {
  return MakeError(
      absl::StatusCode::kUnimplemented,
      {Reason::kUnsupported, "backend",
       absl::StrCat("no oneDNN implementation of ", NameOf(spec.pass), " ",
                    ToString(spec.problem), " in ", NameOf(spec.operand_dtype)),
       "an operation that oneDNN has"});
}

// What one pass may be computed in: the preferred format alone, if there is
// one.
absl::StatusOr<std::vector<Candidate>> Eligible(
    const PassSpec& spec, std::optional<Format> preferred) {
  ASSIGN_OR_RETURN(std::vector<Candidate> candidates, ListCandidates(spec));
  if (candidates.empty()) return NoImplementation(spec);
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

// Of a second pass after the first.
double SavedSeconds(const PassSpec& spec, const Candidate& first,
                    const Candidate& second) {
  return SharedDesc(spec, first) == SharedDesc(spec, second)
             ? PredictSharedSeconds(spec, second)
             : 0;
}

}  // namespace

absl::StatusOr<std::vector<Format>> ChooseFormats(
    absl::Span<const PassSpec> specs, const FormatPreference& preference) {
  const bool together =
      specs.size() == 2 && specs[0].shared != Shared::kNothing;
  std::vector<std::vector<Candidate>> eligible;
  std::vector<Format> formats;
  for (const PassSpec& spec : specs) {
    ASSIGN_OR_RETURN(std::vector<Candidate> candidates,
                     Eligible(spec, preference(spec)));
    formats.push_back(
        std::min_element(candidates.begin(), candidates.end(),
                         [](const Candidate& a, const Candidate& b) {
                           return a.predicted_seconds < b.predicted_seconds;
                         })
            ->format);
    eligible.push_back(std::move(candidates));
  }
  if (!together) return formats;
  double fastest = std::numeric_limits<double>::infinity();
  for (const Candidate& first : eligible[0]) {
    for (const Candidate& second : eligible[1]) {
      const double seconds = first.predicted_seconds +
                             second.predicted_seconds -
                             SavedSeconds(specs[1], first, second);
      if (seconds >= fastest) continue;
      fastest = seconds;
      formats = {first.format, second.format};
    }
  }
  return formats;
}

}  // namespace convgrad::onednn
