#include "server/compute_engine.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "server/memory/admission.h"
#include "server/workers.h"

namespace convgrad {

ComputeEngine::ComputeEngine(const Config& config, const Machine& machine,
                             std::vector<RegisteredBackend> own_backends,
                             MemoryBudget::Executor executor)
    : proofs(std::make_unique<Proofs>(&own_backends)),
      backends(std::move(own_backends)),
      memory(std::make_shared<CallMemory>(
          config.CallBudgetBytes(), config.max_admission_waiters,
          config.buffer_pool_idle_bytes, std::move(executor),
          PinnerOf(backends), config.max_client_share)),
      regions(&memory->budget, config.max_region_bytes),
      sessions(std::make_shared<KeptMemory>(memory, config.max_kept_bytes),
               {config.max_client_sessions, config.max_client_kept_bytes},
               // Neither a step of the system's clock nor a pause of the server
               // may end sessions.
               [this] { return clock.Now(); }),
      plans(config.plan_cache_bytes, &memory->budget),
      weights(config.weight_cache_bytes),
      router(backends, {config.max_macs, config.max_reference_macs},
             config.threads_per_worker),
      scheduler(SchedulerOptions(config, machine, backends), &plans,
                memory.get(), &weights) {}

void ComputeEngine::Resize(const Config& config) {
  const int64_t least = Config::LeastCallBudgetBytes();
  const int64_t share = std::max(config.CallBudgetBytes(), least);
  const int64_t kept = sessions.memory()->used_bytes();
  const int64_t most_kept =
      std::min(config.max_kept_bytes, config.MostKeptBytes());
  // The budget is half of the memory limit, so there is room beyond it.
  const int64_t others = config.memory_budget_bytes - share;
  const int64_t room = std::clamp(config.memory_limit.bytes - others - kept,
                                  least, std::max(share / 2, least));
  const int64_t capacity = std::max(share, kept + room);
  plans.SetMaxBytes(config.plan_cache_bytes);
  weights.SetMaxBytes(config.weight_cache_bytes);
  sessions.memory()->SetMaxBytes(most_kept);
  // Any message must fit beside what sessions keep, or it could wait for ever.
  const int64_t free = kept > most_kept ? room / 2 : capacity;
  const int64_t message = config.max_message_bytes;
  memory->largest_message_bytes =
      AdmissionBytes(message) <= free ? message : LargestAdmissible(free);
  memory->budget.SetCapacity(capacity);
  memory->pool.SetMaxIdle(config.buffer_pool_idle_bytes);
}

void ComputeEngine::DropExpired(absl::Time now, absl::Time unused_since) {
  clock.Tick();
  memory->budget.ExpireWaiters(now);
  sessions.Expire();
  scheduler.DropDead();
  memory->pool.Release(unused_since);
  idle_heap.Look(memory->pool.taken(), now, unused_since);
}

bool ComputeEngine::IsAtWork() const {
  return scheduler.running() > 0 ||
         absl::c_any_of(kAllPriorities, [this](Priority priority) {
           return scheduler.queue_depth(priority) > 0;
         });
}

}  // namespace convgrad
