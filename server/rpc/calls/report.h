// What a compute call tells of its work: to its client, and to the observer.
//
// Thread-safe: free functions without state.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "backends/core/convolution/conv_operation.h"
#include "convgrad/v1/service.pb.h"
#include "server/scheduling/cost_model.h"
#include "server/scheduling/job.h"
#include "server/telemetry/observer.h"

namespace convgrad {

// Fills all of `report` but the predictions. `outcome` says what ran.
void EncodeReport(const OpSample& sample, const ConvOperation& operation,
                  const JobOutcome& outcome, v1::Report* report);

// Adds the stages of a job that ended, one after the other since it was
// submitted, and the bytes that it transferred. A backend may reorder, and
// transfer, before and after it computes: only the sums are known.
void AddStages(const JobOutcome& outcome, absl::Time submitted,
               OpSample* sample);

void EncodePredictions(const std::vector<Prediction>& predictions,
                       v1::Report* report);

// Sets how the operation of `sample` ended.
void SetEnd(const absl::Status& status, OpSample* sample);

}  // namespace convgrad
