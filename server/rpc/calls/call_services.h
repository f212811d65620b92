// What a call uses of the server.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/time/time.h"
#include "convgrad/v1/capabilities.pb.h"
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

// Outlives every call. Never changed once calls arrive; what it points to is
// thread-safe.
struct CallServices {
  OpObserver* observer = nullptr;
  // Null: no spans are asked for.
  Tracer* tracer = nullptr;
  // Shared with the slices of responses that gRPC hasn't let go of.
  std::shared_ptr<CallMemory> memory;
  // Null: this server offers none.
  const RegionRegistry* regions = nullptr;
  Lifecycle* lifecycle = nullptr;
  Gate* gate = nullptr;
  ClientWatch* client_watch = nullptr;
  // Null: connections may send what they like.
  ArrivalWatch* arrivals = nullptr;
  // Null: no connection's bytes are counted.
  const ConnectionTraffic* traffic = nullptr;
  const Router* router = nullptr;
  Scheduler* scheduler = nullptr;
  SessionTable* sessions = nullptr;
  SelfCheckSampler* self_check_sampler = nullptr;
  // Has another thread run a task soon. May be called with any lock held.
  std::function<void(std::function<void()>)> defer;
  // Has one of the threads that copy and hash what clients put run a task.
  std::function<void(std::function<void()>)> copy;
  // Has the warm-up thread do the work and tell `done`, once.
  std::function<void(
      std::vector<std::shared_ptr<const Operation>> work,
      std::function<bool()> give_up,
      std::function<void(const absl::StatusOr<WarmupOutcome>&)> done)>
      warm_up;
  // Payload bytes of one request, and of one response.
  int64_t max_message_bytes = 0;
  // Of calls that come without a deadline.
  absl::Duration default_deadline = absl::InfiniteDuration();
  // Later deadlines count as this one.
  absl::Duration max_deadline = absl::InfiniteDuration();
  // How long a stream waits for its client to send or take a frame.
  absl::Duration stream_idle_timeout = absl::InfiniteDuration();
  // What GetCapabilities answers now.
  std::function<v1::GetCapabilitiesResponse()> capabilities;
};

}  // namespace convgrad
