// These functions report the work of a compute call to its client and to the
// observer.
//
// Thread-safe: free functions without state.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "backends/core/convolution/conv_operation.h"
#include "convgrad/v1/service.pb.h"
#include "server/scheduling/cost_model.h"
#include "server/scheduling/job.h"
#include "server/telemetry/observer.h"

namespace convgrad {

// Fills `report`. `outcome` is the outcome of the job; `predictions` are those
// that chose the backend.
void EncodeReport(const OpSample& sample, const ConvOperation& operation,
                  const JobOutcome& outcome,
                  const std::vector<Prediction>& predictions,
                  v1::Report* report);

// Adds the stages of a job that has ended, and the bytes that it transferred,
// to `*sample`. The stages follow each other from its submission on: a backend
// may reorder and transfer both before and after it computes, and reports only
// sums.
void AddStages(const JobOutcome& outcome, OpSample* sample);

// Sets the status of the operation in `*sample`.
void SetEnd(const absl::Status& status, OpSample* sample);

}  // namespace convgrad
