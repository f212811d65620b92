// `CallServer` is a gRPC server on its own socket, whose calls a test makes.
// Everything that a call uses is real, except the computation.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/time/clock.h"
#include "backends/core/mutex.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/grpcpp.h"
#include "server/rpc/calls/call.h"

namespace convgrad {

// Blocks until `condition` is true, and lets other threads run.
inline void Await(const std::function<bool()>& condition) {
  while (!condition()) std::this_thread::yield();
}

class NoObserver : public OpObserver {
 public:
  void OnStarted(absl::string_view /*method*/) override {}
  void OnHandled(absl::string_view /*method*/, absl::StatusCode /*code*/,
                 absl::Duration /*elapsed*/) override {}
  void OnOperation(const OpSample& /*sample*/) override {}
};

class CallServer {
 public:
  static constexpr int64_t kBudgetBytes = int64_t{512} << 20;
  using Make =
      std::function<Call*(const CallServices& services,
                          grpc::GenericCallbackServerContext* context)>;

  explicit CallServer(Make make)
      : service_(services_, mutex_, std::move(make)) {
    services_.observer = &observer_;
    services_.memory = memory_;
    services_.lifecycle = &lifecycle_;
    services_.gate = &gate_;
    services_.client_watch = &client_watch_;
    services_.arrivals = &arrivals_;
    services_.traffic = &traffic_;
    services_.sessions = &sessions_;
    config_.max_message_bytes = int64_t{80} << 20;
    services_.config = &config_;
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.SetMaxReceiveMessageSize(-1);
    builder.RegisterCallbackGenericService(&service_);
    server_ = builder.BuildAndStart();
    channel_ = grpc::CreateChannel("127.0.0.1:" + std::to_string(port),
                                   grpc::InsecureChannelCredentials());
  }
  ~CallServer() {
    server_->Shutdown(std::chrono::system_clock::now());
    lifecycle_.AwaitIdle(absl::InfiniteFuture());
  }

  const CallServices& services() const { return services_; }
  // Changes what later calls get. To be called between calls.
  void Configure(absl::FunctionRef<void(CallServices&)> change) {
    const MutexLock lock(&mutex_);
    change(services_);
  }
  void ConfigureFlags(absl::FunctionRef<void(Config&)> change) {
    const MutexLock lock(&mutex_);
    change(config_);
  }
  MemoryBudget& budget() { return memory_->budget; }
  ClientWatch& client_watch() { return client_watch_; }
  const std::shared_ptr<grpc::Channel>& channel() { return channel_; }

  // Opens a session.
  SessionUse Open() {
    SessionRequest request;
    request.open_id = std::string(16, 'o');
    return *sessions_.Open({"test", false, false}, request);
  }

 private:
  class Service final : public grpc::CallbackGenericService {
   public:
    Service(const CallServices& services, Mutex& mutex, Make make)
        : services_(services), mutex_(mutex), make_(std::move(make)) {}
    grpc::ServerGenericBidiReactor* CreateReactor(
        grpc::GenericCallbackServerContext* context) override {
      Call* call = [&] {
        const MutexLock lock(&mutex_);
        return make_(services_, context);
      }();
      call->Begin();
      return call;
    }

   private:
    const CallServices& services_;
    Mutex& mutex_;
    const Make make_;
  };

  NoObserver observer_;
  std::shared_ptr<CallMemory> memory_ = std::make_shared<CallMemory>(
      kBudgetBytes, /*max_waiters=*/8, /*max_idle_bytes=*/0,
      [](const std::function<void()>& task) { task(); });
  Lifecycle lifecycle_;
  Gate gate_;
  ClientWatch client_watch_{absl::Hours(1), /*min_rate=*/1};
  ConnectionTraffic traffic_;
  ArrivalWatch arrivals_{&traffic_};
  SessionTable sessions_{std::make_shared<KeptMemory>(memory_, kBudgetBytes),
                         ClientQuotas::Limits(), absl::Now};
  Config config_;
  CallServices services_;
  // Orders changes of both and the calls that read them.
  Mutex mutex_;
  Service service_;
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace convgrad
