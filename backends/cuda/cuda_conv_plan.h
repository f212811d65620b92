// An operation on the device, in slices of the batch whose transfers overlap
// with each other's work.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "backends/core/backend.h"
#include "backends/core/convolution/conv_operation.h"
#include "backends/core/mutex.h"
#include "backends/cuda/cuda_graph.h"
#include "backends/cuda/device/cuda_lane.h"

namespace convgrad::cuda {

// What plans share. cuDNN's handle belongs to one thread at a time: to the one
// that plans, or to the slice that is being enqueued.
struct Worker {
  Device* device = nullptr;
  Lane* lane = nullptr;
  Mutex mutex;
  GraphTarget* target ABSL_GUARDED_BY(mutex) = nullptr;
};

// Plans for the worker, which must outlive the plan; the plan of a worker
// without device and lane can't be run.
// Errors: kUnimplemented, kInternal.
absl::StatusOr<std::unique_ptr<Plan>> MakeConvPlan(
    const ConvOperation& operation, int64_t max_workspace_bytes,
    Worker* worker);

// How a batch is cut: into equal slices, few enough that each is worth its
// launches.
int64_t SliceCount(const ConvOperation& operation);

// Returns the operation on one of `slices` equal slices. Results that are sums
// over the batch become f32 addends, row-major and unscaled.
ConvOperation SliceOf(const ConvOperation& operation, int64_t slices);

// Whether a tensor of these dims has a part of its own for each slice.
bool IsCut(const ConvProblem& problem, Operand operand, const Dims& dims);
bool IsCut(const ConvProblem& problem, Result result, const Dims& dims);

}  // namespace convgrad::cuda
