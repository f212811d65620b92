#include "server/server.h"

#include <unistd.h>

#include <functional>
#include <utility>

#include "backends/core/status.h"
#include "backends/core/steady_now.h"
#include "server/compute_engine.h"
#include "server/limit_watch.h"
#include "server/machine/background_thread.h"
#include "server/memory/region_listener.h"
#include "server/rpc/calls/call.h"
#include "server/rpc/capabilities.h"
#include "server/rpc/conv_grad_service.h"
#include "server/rpc/listed_services.h"
#include "server/rpc/methods.h"
#include "server/rpc/transport/certificate_copies.h"
#include "server/rpc/transport/gate.h"
#include "server/rpc/transport/listeners.h"
#include "server/rpc/transport/readiness.h"
#include "server/server_readings.h"
#include "server/telemetry/metrics_endpoint.h"
#include "server/telemetry/tracing.h"
#include "server/token_file.h"
#include "server/warmer.h"
#include "server/workers.h"
#include "spdlog/spdlog.h"

namespace convgrad {
namespace {

// The period of checks for slow clients and deadlines that gRPC doesn't know.
constexpr absl::Duration kTick = absl::Milliseconds(100);
// The period of checks for connections that send too much: 40 MB at 2 GB/s.
constexpr absl::Duration kArrivalTick = absl::Milliseconds(20);
constexpr absl::Duration kRefresh = absl::Seconds(1);  // Of files and limits.
// The period of checks of the acceptor and of devices.
constexpr absl::Duration kHealthTick = absl::Milliseconds(500);
// A driver answers within milliseconds.
constexpr absl::Duration kDriverPatience = absl::Seconds(2);
// Threads that copy and hash tensors of puts: small ones pass a large one.
constexpr int kCopyThreads = 2;

std::function<void(std::function<void()>)> PostTo(BackgroundThread* thread) {
  return [=](std::function<void()> task) { thread->Post(std::move(task)); };
}

// Logs the error `status` of reading files, unless the last look found the same
// one, `*last`.
void WarnUnread(const char* what, const absl::Status& status,
                absl::Status* last) {
  if (std::exchange(*last, status) == status || status.ok()) return;
  spdlog::warn("{} stay as they were: {}", what, std::string(status.message()));
}

class GrpcServer final : public Server {
 public:
  GrpcServer(const Config& flags, const Machine& machine,
             std::vector<RegisteredBackend> backends);
  ~GrpcServer() override;

  absl::Status Start();

  absl::Status Reload(const Config& config) override;
  bool Drain() override;
  bool is_saved() const override { return is_saved_; }
  const std::vector<std::string>& addresses() const override {
    return listeners_->addresses();
  }
  const std::string& health_address() const override {
    return listeners_->health_address();
  }
  int metrics_port() const override { return metrics_->port(); }
  const Config& config() const override { return config_; }
  Readings gauges() const override { return ReadingsOf(engine_); }
  std::string MetricsText() const override { return metrics_->Text(); }

 private:
  absl::Status StartMetrics();
  absl::Status Listen();
  v1::GetCapabilitiesResponse Describe() const {
    auto server = DescribeServer(config_, cpu_model_, engine_.backends);
    server.set_server_version(Version());
    server.mutable_limits()->set_memory_budget_bytes(limits_.budget_bytes());
    return server;
  }
  void SetServices();
  void Tick();

  // A member uses the members above it.
  const Config config_;
  const std::string cpu_model_;
  ComputeEngine engine_;
  SelfCheckSampler self_check_sampler_;
  CertificateCopies certificates_;
  std::unique_ptr<MetricsEndpoint> metrics_;
  std::unique_ptr<Tracer> tracer_;  // Null: no spans.
  Gate gate_;
  ClientWatch client_watch_;
  ConnectionTraffic traffic_;
  ArrivalWatch arrivals_{&traffic_};
  grpc::ResourceQuota quota_{"convgrad"};
  bool is_saved_ = false;
  TokenFile tokens_;
  // When calls come, only the background thread uses the members below.
  LimitWatch limits_;
  absl::Time next_look_ = SteadyNow() + kRefresh;
  // The executor of `engine_`. It is declared later, because nothing waits for
  // memory before calls come.
  BackgroundThread background_;
  // Reads files. No call waits for this thread, so a disk that hangs delays
  // none.
  BackgroundThread files_{
      kRefresh,
      [this, tokens = absl::Status(), certificates = absl::Status()]() mutable {
        WarnUnread("tokens", tokens_.Refresh(), &tokens);
        WarnUnread("certificates", certificates_.Refresh(), &certificates);
      }};
  BackgroundThread copies_{kCopyThreads};
  BackgroundThread plans_{PlanThreads(config_)};
  BackgroundThread arrival_watch_{kArrivalTick, [this] { arrivals_.Look(); }};
  std::unique_ptr<RegionListener> region_listener_;  // Null: no regions.
  Lifecycle lifecycle_;
  CallServices services_;
  ConvGradService service_{services_};
  std::unique_ptr<Listeners> listeners_;
  std::unique_ptr<Readiness> readiness_;
  std::unique_ptr<BackgroundThread> health_watch_;
  Warmer warmer_;
};

GrpcServer::GrpcServer(const Config& flags, const Machine& machine,
                       std::vector<RegisteredBackend> backends)
    : config_(WithDefaults(flags, machine)),
      cpu_model_(machine.cpu_model),
      engine_(config_, machine, std::move(backends), PostTo(&background_)),
      self_check_sampler_(config_.self_check_ratio),
      certificates_({config_.tls_cert, config_.tls_key, config_.tls_client_ca}),
      client_watch_(config_.unary_idle_timeout, config_.min_client_rate),
      tokens_(config_.token_file, &gate_),
      limits_(flags, machine, &engine_,
              [this](int64_t bytes) { quota_.Resize(bytes); }),
      background_(kTick, [this] { Tick(); }),
      warmer_(&engine_, config_.threads_per_worker) {
  gate_.SetLimits({config_.max_client_calls, config_.max_client_bytes});
}

GrpcServer::~GrpcServer() {
  if (listeners_ == nullptr) return;
  health_watch_.reset();
  engine_.proofs->Tell(nullptr);
  readiness_->StartDraining();
  warmer_.Stop();
  // The sessions' replies are slices of gRPC, so they end before gRPC does.
  engine_.sessions.EndAll(DrainingError());
  // Cancels the calls that are left, and blocks until they have ended.
  listeners_.reset();
  // A stream exists until its alarm has run, possibly after its call ended.
  lifecycle_.AwaitIdle(absl::InfiniteFuture());
  engine_.scheduler.Shutdown();
}

absl::Status GrpcServer::Start() {
  RETURN_IF_ERROR(tokens_.Refresh());
  RETURN_IF_ERROR(certificates_.Refresh());
  ASSIGN_OR_RETURN(
      engine_.durable_sessions,
      DurableSessions::Start(config_, FactsOf(Describe()), &engine_.sessions));
  RETURN_IF_ERROR(StartMetrics());
  if (!config_.otlp_endpoint.empty()) {
    ASSIGN_OR_RETURN(tracer_, StartTracing(config_.otlp_endpoint, Version()));
  }
  if (!config_.regions_listen.empty()) {
    ASSIGN_OR_RETURN(region_listener_,
                     RegionListener::Start(
                         {.path = config_.RegionsPath(), .owner = geteuid()},
                         &engine_.regions));
  }
  RETURN_IF_ERROR(Listen());
  return warmer_.Start(config_.prove_at_start, config_.warmup_file,
                       [this] { readiness_->SetReady(); });
}

void GrpcServer::Tick() {
  const absl::Time now = SteadyNow();
  engine_.DropExpired(now, now - config_.buffer_pool_idle_time);
  client_watch_.Expire(now);
  if (now < next_look_) return;
  next_look_ = now + kRefresh;
  limits_.Look();
}

absl::Status GrpcServer::StartMetrics() {
  MetricsOptions options;
  options.listen = config_.metrics_listen;
  options.version = Version();
  options.gauges = [this] { return gauges(); };
  options.certificates = {{"tls_cert", certificates_.paths().cert},
                          {"tls_client_ca", certificates_.paths().client_ca}};
  options.methods = MeasuredMethods();
  for (const RegisteredBackend& entry : engine_.backends) {
    options.backends.emplace_back(entry.name);
  }
  options.operations = {"forward", "backward",         "put",   "get",
                        "run",     "backward_program", "train", "update"};
  ASSIGN_OR_RETURN(metrics_, MetricsEndpoint::Start(options));
  return absl::OkStatus();
}

void GrpcServer::SetServices() {
  services_.config = &config_;
  services_.observer = metrics_->observer();
  services_.tracer = tracer_.get();
  services_.memory = engine_.memory;
  services_.regions = region_listener_ == nullptr ? nullptr : &engine_.regions;
  services_.lifecycle = &lifecycle_;
  services_.gate = &gate_;
  services_.client_watch = &client_watch_;
  services_.arrivals = &arrivals_;
  services_.traffic = &traffic_;
  services_.router = &engine_.router;
  services_.scheduler = &engine_.scheduler;
  services_.sessions = &engine_.sessions;
  services_.self_check_sampler = &self_check_sampler_;
  services_.defer = PostTo(&background_);
  services_.copy = copies_.executor();
  services_.plan = plans_.executor();
  services_.warm_up = std::bind_front(&Warmer::Post, &warmer_);
  services_.capabilities = [this] { return Describe(); };
}

absl::Status GrpcServer::Listen() {
  SetServices();
  Call::HandOver();
  ListenerOptions options;
  options.addresses = config_.ListenAddresses();
  options.tls = certificates_.paths();
  options.health_address = config_.health_listen;
  options.max_message_bytes = config_.max_message_bytes;
  options.quota = &quota_;
  if (config_.max_connection_age > absl::ZeroDuration()) {
    options.max_connection_age = config_.max_connection_age;
  }
  options.reflection = config_.token_file.empty();
  ASSIGN_OR_RETURN(listeners_, Listeners::Start(options, MakeListedServices(),
                                                &service_, &traffic_));
  readiness_ = std::make_unique<Readiness>(listeners_.get());
  health_watch_ = std::make_unique<BackgroundThread>(kHealthTick, [this] {
    readiness_->Listen();
    engine_.devices.Look(readiness_.get());
  });
  engine_.proofs->Tell(readiness_.get());
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
  const bool is_idle = lifecycle_.Drain(config_.drain_timeout, [this] {
    return engine_.IsAtWork() || !copies_.is_idle() || !plans_.is_idle();
  });
  if (!is_idle) spdlog::error("work was left after --drain_timeout");
  is_saved_ = engine_.durable_sessions == nullptr ||
              engine_.durable_sessions->SaveAll();
  if (!is_saved_) spdlog::error("changes of durable sessions aren't on disk");
  const bool drivers_answer = engine_.devices.DriversAnswer(kDriverPatience);
  if (!drivers_answer) spdlog::error("the driver of a device doesn't answer");
  return is_idle && drivers_answer;
}

}  // namespace

std::string Version() { return CONVGRAD_VERSION; }

absl::StatusOr<std::unique_ptr<Server>> Server::Start(
    const Config& config, std::vector<RegisteredBackend> backends) {
  const Machine machine = ReadMachine(config.machine_root);
  RETURN_IF_ERROR(WithDefaults(config, machine).Validate());
  ASSIGN_OR_RETURN(std::vector<RegisteredBackend> selected,
                   SelectBackends(std::move(backends), config.backends));
  auto server =
      std::make_unique<GrpcServer>(config, machine, std::move(selected));
  RETURN_IF_ERROR(server->Start());
  return server;
}

}  // namespace convgrad
