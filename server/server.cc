#include "server/server.h"

#include <unistd.h>

#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "backends/core/status.h"
#include "server/background_thread.h"
#include "server/devices.h"
#include "server/memory/call_memory.h"
#include "server/memory/region_listener.h"
#include "server/memory/region_registry.h"
#include "server/plan_choice.h"
#include "server/proofs.h"
#include "server/rpc/admin_service.h"
#include "server/rpc/call.h"
#include "server/rpc/capabilities.h"
#include "server/rpc/conv_grad_service.h"
#include "server/rpc/gate.h"
#include "server/rpc/lifecycle.h"
#include "server/rpc/listed_service.h"
#include "server/rpc/listeners.h"
#include "server/rpc/readiness.h"
#include "server/scheduling/plan_cache.h"
#include "server/scheduling/routing.h"
#include "server/scheduling/scheduler.h"
#include "server/scheduling/warmup.h"
#include "server/scheduling/weight_cache.h"
#include "server/telemetry/metrics_endpoint.h"
#include "server/telemetry/tracing.h"
#include "server/token_file.h"
#include "server/warmer.h"
#include "server/workers.h"
#include "spdlog/spdlog.h"

namespace convgrad {
namespace {

// How often deadlines are looked at that gRPC doesn't watch: those of calls
// that came without one.
constexpr absl::Duration kTick = absl::Milliseconds(100);

// How often files are looked at that may have changed.
constexpr absl::Duration kRefresh = absl::Seconds(1);

class GrpcServer final : public Server {
 public:
  GrpcServer(Config config, const Machine& machine,
             std::vector<RegisteredBackend> backends,
             std::unique_ptr<Proofs> proofs);
  ~GrpcServer() override;

  absl::Status LoadTokens();
  absl::Status StartMetrics();
  absl::Status StartTracer();
  absl::Status StartRegions();
  absl::Status Listen();
  absl::Status StartWarmup();

  absl::Status Reload(const Config& config) override;
  bool Drain() override;
  const std::vector<std::string>& addresses() const override {
    return listeners_->addresses();
  }
  const std::string& health_address() const override {
    return listeners_->health_address();
  }
  int metrics_port() const override { return metrics_->port(); }
  const Config& config() const override { return config_; }
  ServerGauges gauges() const override;
  std::string MetricsText() const override { return metrics_->Text(); }

 private:
  CallServices MakeServices();
  void Tick();

  // In the order of construction: a part uses those above it.
  const Config config_;
  const std::unique_ptr<Proofs> proofs_;
  const std::vector<RegisteredBackend> backends_;
  const std::shared_ptr<CallMemory> memory_;
  RegionRegistry regions_;
  PlanCache plans_;
  WeightCache weights_;
  Router router_;
  Scheduler scheduler_;
  SelfCheckSampler self_check_sampler_;
  std::unique_ptr<MetricsEndpoint> metrics_;
  // Null: no spans are asked for.
  std::unique_ptr<Tracer> tracer_;
  Gate gate_;
  // Once calls come, the background thread's, as is the next line.
  TokenFile tokens_;
  absl::Time next_refresh_ = absl::Now() + kRefresh;
  // Serves `memory_` as executor: there are no waiters without calls.
  BackgroundThread background_;
  // Null: none are offered.
  std::unique_ptr<RegionListener> region_listener_;
  Lifecycle lifecycle_;
  CallServices services_;
  std::unique_ptr<ListedService> listed_service_;
  std::unique_ptr<AdminService> admin_service_;
  std::unique_ptr<ConvGradService> service_;
  std::unique_ptr<Listeners> listeners_;
  std::unique_ptr<Readiness> readiness_;
  std::unique_ptr<DeviceWatch> device_watch_;
  Warmer warmer_;
};

GrpcServer::GrpcServer(Config config, const Machine& machine,
                       std::vector<RegisteredBackend> backends,
                       std::unique_ptr<Proofs> proofs)
    : config_(std::move(config)),
      proofs_(std::move(proofs)),
      backends_(std::move(backends)),
      memory_(std::make_shared<CallMemory>(
          config_.CallBudgetBytes(), config_.max_admission_waiters,
          config_.buffer_pool_idle_bytes,
          [this](std::function<void()> task) {
            background_.Post(std::move(task));
          },
          PinnerOf(backends_))),
      regions_(&memory_->budget, config_.max_region_bytes),
      plans_(config_.plan_cache_bytes),
      weights_(config_.weight_cache_bytes),
      router_(backends_, {config_.max_macs, config_.max_reference_macs},
              config_.threads_per_worker),
      scheduler_(
          SchedulerOptions(config_, machine, backends_, router_.cost_model()),
          &plans_, memory_.get(), &weights_),
      self_check_sampler_(config_.self_check_ratio),
      tokens_(config_.token_file, &gate_),
      background_(kTick, [this] { Tick(); }),
      warmer_(&backends_, config_.threads_per_worker, &plans_) {
  gate_.SetLimits({config_.max_client_calls, config_.max_client_bytes});
}

GrpcServer::~GrpcServer() {
  if (listeners_ == nullptr) return;
  device_watch_.reset();
  proofs_->Tell(nullptr);
  readiness_->StartDraining();
  warmer_.Stop();
  // Cancels what is left; each call still ends by itself, so that jobs and
  // waiters are gone when this returns.
  listeners_.reset();
  // A stream outlives its call until its alarm has gone off.
  lifecycle_.AwaitIdle(absl::InfiniteFuture());
  scheduler_.Shutdown();
}

absl::Status GrpcServer::LoadTokens() { return tokens_.Refresh(); }

void GrpcServer::Tick() {
  const absl::Time now = absl::Now();
  memory_->budget.ExpireWaiters(now);
  scheduler_.DropDead();
  memory_->pool.ReleaseUnusedSince(now - config_.buffer_pool_idle_time);
  if (now < next_refresh_) return;
  next_refresh_ = now + kRefresh;
  const absl::Status tokens = tokens_.Refresh();
  if (!tokens.ok()) {
    spdlog::warn("tokens stay as they were: {}", std::string(tokens.message()));
  }
}

absl::Status GrpcServer::StartMetrics() {
  MetricsOptions options;
  options.listen = config_.metrics_listen;
  options.version = Version();
  options.gauges = [this] { return gauges(); };
  for (const RegisteredBackend& entry : backends_) {
    options.backends.emplace_back(entry.name);
  }
  for (Direction direction : {Direction::kForward, Direction::kBackward}) {
    options.operations.emplace_back(NameOf(direction));
  }
  ASSIGN_OR_RETURN(metrics_, MetricsEndpoint::Start(options));
  return absl::OkStatus();
}

absl::Status GrpcServer::StartTracer() {
  if (config_.otlp_endpoint.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(tracer_, StartTracing(config_.otlp_endpoint, Version()));
  return absl::OkStatus();
}

absl::Status GrpcServer::StartRegions() {
  if (config_.regions_listen.empty()) return absl::OkStatus();
  RegionListenerOptions options;
  options.path = config_.RegionsPath();
  options.owner = geteuid();
  ASSIGN_OR_RETURN(region_listener_, RegionListener::Start(options, &regions_));
  return absl::OkStatus();
}

ServerGauges GrpcServer::gauges() const {
  ServerGauges gauges;
  for (Priority priority : kAllPriorities) {
    gauges.queues.push_back({std::string(NameOf(priority)),
                             scheduler_.queue_depth(priority),
                             scheduler_.EstimatedWait(priority)});
    gauges.queue_depth += gauges.queues.back().depth;
  }
  gauges.jobs_running = scheduler_.running();
  gauges.memory_used_bytes = memory_->budget.used_bytes();
  gauges.memory_capacity_bytes = memory_->budget.capacity_bytes();
  gauges.admission_waiters = memory_->budget.waiters();
  gauges.buffers_outstanding = memory_->pool.outstanding();
  gauges.buffer_bytes_outstanding = memory_->pool.outstanding_bytes();
  gauges.buffer_bytes_idle = memory_->pool.idle_bytes();
  gauges.regions = regions_.regions();
  gauges.region_bytes = regions_.region_bytes();
  gauges.plan_cache_bytes = plans_.bytes();
  gauges.plan_cache_plans = plans_.plans();
  gauges.devices = GaugesOf(backends_, scheduler_);
  gauges.proofs = proofs_->gauges();
  gauges.weight_cache_bytes = weights_.bytes();
  gauges.weight_cache_hits = weights_.hits();
  gauges.weight_cache_misses = weights_.misses();
  return gauges;
}

CallServices GrpcServer::MakeServices() {
  CallServices services;
  services.observer = metrics_->observer();
  services.tracer = tracer_.get();
  services.memory = memory_;
  services.regions = region_listener_ == nullptr ? nullptr : &regions_;
  services.lifecycle = &lifecycle_;
  services.gate = &gate_;
  services.router = &router_;
  services.cost_model = router_.cost_model();
  services.scheduler = &scheduler_;
  services.self_check_sampler = &self_check_sampler_;
  services.max_message_bytes = config_.max_message_bytes;
  services.default_deadline = config_.default_deadline;
  services.stream_idle_timeout = config_.stream_idle_timeout;
  services.defer = [this](std::function<void()> task) {
    background_.Post(std::move(task));
  };
  services.warm_up =
      [this](std::vector<std::shared_ptr<const Operation>> work,
             std::function<bool()> give_up,
             std::function<void(const absl::StatusOr<WarmupOutcome>&)> done) {
        warmer_.Post(std::move(work), std::move(give_up), std::move(done));
      };
  services.capabilities = [this] {
    return DescribeServer(
        {Version(), config_.max_message_bytes, config_.memory_budget_bytes,
         config_.max_macs, config_.max_reference_macs, config_.workers,
         config_.threads_per_worker, config_.regions_listen,
         config_.max_region_bytes},
        backends_);
  };
  return services;
}

absl::Status GrpcServer::Listen() {
  services_ = MakeServices();
  listed_service_ = std::make_unique<ListedService>(services_);
  admin_service_ = std::make_unique<AdminService>(services_);
  service_ = std::make_unique<ConvGradService>(services_);
  Call::HandOver();
  ListenerOptions options;
  options.addresses = config_.ListenAddresses();
  options.tls = {config_.tls_cert, config_.tls_key, config_.tls_client_ca};
  options.health_address = config_.health_listen;
  options.max_message_bytes = config_.max_message_bytes;
  options.call_budget_bytes = config_.CallBudgetBytes();
  if (config_.max_connection_age > absl::ZeroDuration()) {
    options.max_connection_age = config_.max_connection_age;
  }
  options.reflection = config_.token_file.empty();
  ASSIGN_OR_RETURN(
      listeners_,
      Listeners::Start(options, {listed_service_.get(), admin_service_.get()},
                       service_.get()));
  readiness_ = std::make_unique<Readiness>(listeners_.get());
  device_watch_ = DeviceWatch::Start(&backends_, &router_, readiness_.get());
  proofs_->Tell(readiness_.get());
  return absl::OkStatus();
}

absl::Status GrpcServer::StartWarmup() {
  const auto ready = [this] { readiness_->SetReady(); };
  const bool proves = config_.prove_at_start && !proofs_->empty();
  if (proves) {
    warmer_.PostTask([this](const std::function<bool()>& give_up) {
      proofs_->Run(config_.threads_per_worker, give_up);
    });
  }
  const std::string& path = config_.warmup_file;
  if (!path.empty()) return warmer_.PostFile(path, ready);
  if (proves) {
    warmer_.PostTask([ready](const std::function<bool()>&) { ready(); });
  } else {
    ready();
  }
  return absl::OkStatus();
}

absl::Status GrpcServer::Reload(const Config& config) {
  RETURN_IF_ERROR(config.Validate());
  RETURN_IF_ERROR(tokens_.Refresh());
  gate_.SetLimits({config.max_client_calls, config.max_client_bytes});
  return absl::OkStatus();
}

bool GrpcServer::Drain() {
  readiness_->StartDraining();
  absl::SleepFor(config_.drain_delay);
  lifecycle_.StartDraining();
  const absl::Time until = absl::Now() + config_.drain_timeout;
  return lifecycle_.AwaitIdle(until);
}

}  // namespace

std::string Version() { return CONVGRAD_VERSION; }

absl::StatusOr<std::unique_ptr<Server>> Server::Start(
    const Config& config, std::vector<RegisteredBackend> backends) {
  const Machine machine = ReadMachine();
  const Config complete = WithDefaults(config, machine);
  RETURN_IF_ERROR(complete.Validate());
  ASSIGN_OR_RETURN(std::vector<RegisteredBackend> selected,
                   SelectBackends(std::move(backends), complete.backends));
  RETURN_IF_ERROR(FollowPlanFile(
      complete.plan_file,
      OriginHere(machine, complete.threads_per_worker, selected), selected));
  auto proofs = std::make_unique<Proofs>(&selected);
  auto server = std::make_unique<GrpcServer>(
      complete, machine, std::move(selected), std::move(proofs));
  RETURN_IF_ERROR(server->LoadTokens());
  RETURN_IF_ERROR(server->StartMetrics());
  RETURN_IF_ERROR(server->StartTracer());
  RETURN_IF_ERROR(server->StartRegions());
  RETURN_IF_ERROR(server->Listen());
  RETURN_IF_ERROR(server->StartWarmup());
  return server;
}

}  // namespace convgrad
