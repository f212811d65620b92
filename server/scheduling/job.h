// A `Job` is one operation for the scheduler: the work, its buffers, its
// deadline, and the callback for its outcome.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "backends/core/backend.h"
#include "server/memory/bound_tensors.h"
#include "server/memory/priority.h"
#include "server/scheduling/inspection.h"

namespace convgrad {

// The outcome of a job. Durations are sums over its slices.
struct JobOutcome {
  absl::Status status;
  bool no_room = false;         // Refused; the job may be submitted again.
  std::string implementation;   // "" if the job got no plan.
  bool planned = false;         // A plan was looked up.
  bool plan_cache_hit = false;  // True if each slice's lookup was a hit.
  absl::Duration queue;
  absl::Duration plan;
  RunTimes run;
  Findings findings;
  absl::Time submitted;
};

// The scheduler owns a job from Submit until `done` returns. Thread-compatible,
// except `cancelled`.
struct Job {
  // The operation; valid, without operands that it doesn't need.
  std::shared_ptr<const Operation> operation;
  // Chosen by Router::Route; outlives the scheduler.
  const Backend* backend = nullptr;
  InspectionRequest inspection;
  // All buffers except scratch, which the worker provides. They must stay valid
  // until `done` is called.
  RunBuffers buffers;
  // Copies operands into `buffers` and results out of them, on the worker. Null
  // if the buffers are complete. It must stay valid until `done` is called.
  BoundTensors* tensors = nullptr;
  // Whether the weight cache may keep the weights' prepared form for the
  // client's next call. If true, no one may write to the weights, including
  // their client.
  bool keeps_weights = false;
  // Ids of the operation's weights, as in WeightCache::Lease; empty if they
  // have none.
  std::vector<uint64_t> weight_ids;
  // Whether this is the second job of a call that has computed its first one.
  // It is queued even if there is no room, because its refusal would waste that
  // work.
  bool continues = false;
  // Bytes of scratch that the caller's own reservation covers.
  int64_t prepaid_scratch_bytes = 0;
  // The caller's own reservation for the job.
  int64_t held_bytes = 0;
  absl::Time deadline = absl::InfiniteFuture();
  Priority priority = Priority::kBatch;
  // Workers serve the clients of a priority round robin.
  std::string client;
  // The caller may set it at any time. The worker reads it on dequeue, as does
  // Scheduler::DropDead. Null: never cancelled.
  std::shared_ptr<std::atomic<bool>> cancelled;
  // Called exactly once, on a worker's thread or in Submit, DropDead or
  // Shutdown, with no lock held.
  std::function<void(JobOutcome)> done;
};

}  // namespace convgrad
