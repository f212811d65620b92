// `ComputeEngine` holds the parts of a server that compute, without its
// sockets.
#pragma once

#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "backends/registry.h"
#include "server/devices.h"
#include "server/durable_sessions.h"
#include "server/flags/config.h"
#include "server/machine/active_clock.h"
#include "server/machine/idle_heap.h"
#include "server/machine/machine.h"
#include "server/memory/call_memory.h"
#include "server/memory/region_registry.h"
#include "server/proofs.h"
#include "server/scheduling/plan_cache.h"
#include "server/scheduling/routing.h"
#include "server/scheduling/scheduler.h"
#include "server/scheduling/weight_cache.h"
#include "server/sessions/session_table.h"

namespace convgrad {

// The backends, their workers, and the memory and caches that calls share. Its
// members are thread-safe.
struct ComputeEngine {
  // `executor` runs the callbacks of calls that waited for memory. Requires:
  // WithDefaults.
  ComputeEngine(const Config& config, const Machine& machine,
                std::vector<RegisteredBackend> own_backends,
                MemoryBudget::Executor executor);

  // Changes the limits of memory to those of `config`. Free buffers and caches
  // shrink first. What calls and sessions hold stays. If sessions keep more
  // than the calls' memory, that memory is larger than `config` says, so that
  // clients can read and drop tensors. Requires: WithDefaults. Call it
  // regularly while that may be so.
  void Resize(const Config& config);

  // Refuses the calls and jobs whose deadline is over, and frees the buffers
  // that are unused since `unused_since`. Trims the heap if no call took a
  // buffer since then. Only one thread may call it, several times a second.
  void DropExpired(absl::Time now, absl::Time unused_since);

  // Returns whether jobs run or are queued.
  bool IsAtWork() const;

  // A member uses the members above it.
  const std::unique_ptr<Proofs> proofs;
  const std::vector<RegisteredBackend> backends;
  const std::shared_ptr<CallMemory> memory;
  RegionRegistry regions;
  ActiveClock clock;  // Of the sessions' leases and deadlines.
  SessionTable sessions;
  // Null without --state_dir, and before the server starts.
  std::unique_ptr<DurableSessions> durable_sessions;
  PlanCache plans;
  WeightCache weights;
  Router router;
  Scheduler scheduler;
  DeviceWatch devices{backends, &router};
  IdleHeap idle_heap;
};

}  // namespace convgrad
