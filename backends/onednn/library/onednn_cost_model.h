// Predicts how long a candidate takes: what plans follow where nothing was
// timed.
#pragma once

#include <cstdint>

#include "backends/onednn/library/onednn_candidates.h"

namespace convgrad::onednn {

// Returns the share of a vector's lanes that `channels` fill: 3 of 16 waste the
// other 13. Range: above 0, at most 1.
double LaneShare(int64_t channels);

// Whether the library's bias gradient costs more than one beside it: its gemm
// implementation adds up 16-bit gradients one by one.
bool SumsBiasSlowly(const PassSpec& spec, const Candidate& candidate);

// Returns the seconds of the pass and its reorders on spec.threads cores. Good
// for comparing candidates of one pass only. Requires: everything of
// `candidate` but predicted_seconds.
double PredictSeconds(const PassSpec& spec, const Candidate& candidate);

// Returns how much of them goes into a copy of the shared tensor, which another
// pass may have made. Requires: spec.shared isn't kNothing.
double PredictSharedSeconds(const PassSpec& spec, const Candidate& candidate);

}  // namespace convgrad::onednn
