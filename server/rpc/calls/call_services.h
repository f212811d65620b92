// `CallServices` points to the objects of the server that calls use.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "convgrad/v1/capabilities.pb.h"
#include "server/flags/config.h"
#include "server/memory/call_memory.h"
#include "server/memory/region_registry.h"
#include "server/rpc/calls/lifecycle.h"
#include "server/rpc/calls/self_check_sampler.h"
#include "server/rpc/transport/arrival_watch.h"
#include "server/rpc/transport/client_watch.h"
#include "server/rpc/transport/connection_traffic.h"
#include "server/rpc/transport/gate.h"
#include "server/scheduling/routing.h"
#include "server/scheduling/scheduler.h"
#include "server/scheduling/warmup.h"
#include "server/sessions/session_table.h"
#include "server/telemetry/observer.h"
#include "server/telemetry/tracing.h"

namespace convgrad {

// Runs a task on a thread of a pool, where clients take turns.
using ClientExecutor =
    std::function<void(const std::string& client, std::function<void()> task)>;

// `CallServices` outlives every call and doesn't change once calls arrive. The
// objects that it points to are thread-safe.
struct CallServices {
  const Config* config = nullptr;
  OpObserver* observer = nullptr;
  // Null: no spans are made.
  Tracer* tracer = nullptr;
  // Shared with the slices of responses that gRPC hasn't freed.
  std::shared_ptr<CallMemory> memory;
  // Null: this server offers no regions.
  const RegionRegistry* regions = nullptr;
  Lifecycle* lifecycle = nullptr;
  Gate* gate = nullptr;
  ClientWatch* client_watch = nullptr;
  ArrivalWatch* arrivals = nullptr;
  ConnectionTraffic* traffic = nullptr;
  const Router* router = nullptr;
  Scheduler* scheduler = nullptr;
  SessionTable* sessions = nullptr;
  SelfCheckSampler* self_check_sampler = nullptr;
  // Runs a task soon on another thread. May be called with any lock held.
  std::function<void(std::function<void()>)> defer;
  ClientExecutor copy;  // On the copying threads.
  ClientExecutor plan;  // On the planning threads.
  // Makes the plans of `work` on the warm-up thread and calls `done` once.
  std::function<void(std::vector<std::shared_ptr<const Operation>> work,
                     std::function<bool()> give_up, WarmupDone done)>
      warm_up;
  // Returns the current answer of GetCapabilities.
  std::function<v1::GetCapabilitiesResponse()> capabilities;
};

}  // namespace convgrad
