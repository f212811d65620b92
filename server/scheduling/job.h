// A `Job` is one operation for the scheduler: what to compute, on which bytes,
// until when, and the callback for its outcome.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "backends/core/backend.h"
#include "server/memory/bound_tensors.h"
#include "server/memory/priority.h"
#include "server/scheduling/inspection.h"

namespace convgrad {

// The outcome of a job. Durations are sums over its slices.
struct JobOutcome {
  absl::Status status;
  bool no_room = false;         // refused; the same job may be submitted again
  std::string implementation;   // "" if it never got a plan
  bool planned = false;         // a plan was looked up
  bool plan_cache_hit = false;  // each time
  absl::Duration queue;
  absl::Duration plan;
  RunTimes run;
  Findings findings;
};

// Owned by the scheduler from Submit until `done` returns.
struct Job {
  // Valid, without operands that it doesn't need.
  std::shared_ptr<const Operation> operation;
  // Chosen by Router::Route; outlives the scheduler.
  const Backend* backend = nullptr;
  InspectionRequest inspection;
  // All buffers but scratch, which the worker provides. They must stay valid
  // until `done` is called.
  RunBuffers buffers;
  // Copies operands into `buffers` and results out of them, on the worker.
  // Null: the buffers are complete. It must stay valid until `done` is called.
  BoundTensors* tensors = nullptr;
  // Whether the weights' prepared form may be kept for the client's next call;
  // nobody may write to them then, not even their client.
  bool keeps_weights = false;
  // Of the operation's weights, as WeightCache::Lease takes them; empty: none.
  std::vector<uint64_t> weight_ids;
  // Bytes of scratch that the caller's own reservation covers.
  int64_t prepaid_scratch_bytes = 0;
  absl::Time deadline = absl::InfiniteFuture();
  Priority priority = Priority::kBatch;
  // Workers serve the clients of a priority round robin.
  std::string client;
  // Set by the caller at any time; looked at on dequeue and by
  // Scheduler::DropDead. Null: never cancelled.
  std::shared_ptr<std::atomic<bool>> cancelled;
  // Called exactly once, on a worker's thread or in Submit, DropDead or
  // Shutdown, with no lock held.
  std::function<void(JobOutcome)> done;
};

}  // namespace convgrad
