// `MakeConvPlan` plans an operation on the device, in slices of the batch. The
// transfers of a slice overlap the work of others.
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

// State shared by plans. cuDNN's handle belongs to one thread at a time: the
// one that plans, or the one that enqueues a slice.
struct Worker {
  Device* device = nullptr;
  Lane* lane = nullptr;
  Mutex mutex;
  GraphTarget* target ABSL_GUARDED_BY(mutex) = nullptr;
};

// Returns a plan for `worker`, which must outlive it. A plan of a worker
// without device and lane can't run. Requires: a batch of at least 1; no
// unneeded operand. Errors: kUnimplemented, kInternal.
absl::StatusOr<std::unique_ptr<Plan>> MakeConvPlan(
    const ConvOperation& operation, Worker* worker);

// Returns the number of equal slices into which to cut the batch. It is small
// enough that the work of a slice justifies its launches.
int64_t SliceCount(const ConvOperation& operation);

}  // namespace convgrad::cuda
