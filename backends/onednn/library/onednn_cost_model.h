// Predicts the time of a candidate for plans that weren't timed.
#pragma once

#include <cstdint>

#include "backends/onednn/library/onednn_candidates.h"

namespace convgrad::onednn {

// Returns the share of a vector's lanes that `channels` fill, e.g. 3 of 16.
// Range: above 0, at most 1.
double LaneShare(int64_t channels);

// Returns the predicted seconds of the pass and its reorders on spec.threads
// cores. Only for comparing candidates of one pass. Requires: all members of
// `candidate` except predicted_seconds are set.
double PredictSeconds(const PassSpec& spec, const Candidate& candidate);

// Returns the part of these seconds for a copy of the shared tensor, which
// another pass may have made. Requires: spec.shared isn't kNothing.
double PredictSharedSeconds(const PassSpec& spec, const Candidate& candidate);

}  // namespace convgrad::onednn
