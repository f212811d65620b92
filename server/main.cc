// This file is the main program of convgrad-server.
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "backends/core/status.h"
#include "grpc/grpc.h"
#include "server/flags/flag_parser.h"
#include "server/machine/descriptor_limit.h"
#include "server/machine/machine.h"
#include "server/machine/openmp_spinning.h"
#include "server/machine/parent.h"
#include "server/rpc/health_check.h"
#include "server/rpc/transport/pipe_check.h"
#include "server/rpc/transport/tls_failures.h"
#include "server/self_test.h"
#include "server/server.h"
#include "spdlog/spdlog.h"

namespace convgrad {
namespace {

sigset_t StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

sigset_t AllSignals() {
  sigset_t signals = StopSignals();
  sigaddset(&signals, SIGHUP);
  return signals;
}

// Messages have up to hundreds of megabytes. With glibc's defaults their slices
// are mapped and unmapped each time, and page faults take most of the time
// (1.2-1.5 GB/s became 0.3-0.5 GB/s). So malloc keeps freed heap, but no more
// bytes than idle buffers have. It uses few arenas, because each arena keeps
// its own memory.
void TuneMalloc(const Config& config) {
  // The largest value that glibc accepts.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD,
          static_cast<int>(std::clamp<int64_t>(config.buffer_pool_idle_bytes,
                                               1 << 20, 1 << 30)));
  mallopt(M_ARENA_MAX, 4);
}

int RunHealthCheck(const Config& config) {
  const std::vector<std::string> addresses =
      config.health_listen.empty()
          ? config.ListenAddresses()
          : std::vector<std::string>{config.health_listen};
  const absl::Status status =
      addresses.empty() ? absl::InvalidArgumentError("--listen is empty")
                        : CheckHealth(addresses[0], absl::Seconds(5));
  std::printf("%s\n", status.ok() ? "serving" : status.ToString().c_str());
  return status.ok() ? 0 : 1;
}

// Stops the server and returns the exit status of the process.
int StopGracefully(std::unique_ptr<Server> server) {
  const std::string folder = server->config().remove_at_end;
  spdlog::info("draining");
  // A second signal means that the user doesn't want to wait.
  std::thread([] {
    int signal = 0;
    const sigset_t signals = StopSignals();
    sigwait(&signals, &signal);
    spdlog::warn("stopping at once");
    _exit(1);
  }).detach();
  if (!server->Drain()) {
    // Running work and a driver that hangs can't be interrupted, and the
    // process must not wait for them.
    RemoveSocketFolder(folder);
    _exit(1);
  }
  const int status = server->is_saved() ? 0 : 1;
  server.reset();
  RemoveSocketFolder(folder);
  spdlog::info("stopped");
  return status;
}

int SelfTestInstead(const Config& config) {
  const absl::StatusOr<bool> passed =
      RunSelfTest(WithDefaults(config, ReadMachine()), std::cout);
  if (passed.ok()) return *passed ? 0 : 1;
  spdlog::error("{}", std::string(passed.status().message()));
  return 2;
}

// Errors: kInvalidArgument if a flag file is a pipe, because the start has read
// it, and a second read would find no flags or wait for a writer.
absl::Status CheckFlagFiles(const std::vector<std::string>& arguments) {
  for (absl::string_view argument : arguments) {
    if (!absl::ConsumePrefix(&argument, "--flagfile=")) continue;
    for (const absl::string_view path : absl::StrSplit(argument, ',')) {
      RETURN_IF_ERROR(CheckNoPipe("--flagfile", std::string(path)));
    }
  }
  return absl::OkStatus();
}

// Reads the command line and its files again.
absl::StatusOr<Config> Reload(const std::vector<std::string>& arguments,
                              Server* server) {
  RETURN_IF_ERROR(CheckFlagFiles(arguments));
  ASSIGN_OR_RETURN(const ParsedFlags line, ParseFlags(arguments, Version()));
  if (!line.answer.empty()) {
    return absl::InvalidArgumentError(
        "found --help or --version, expected flags of a server that runs");
  }
  const Config config = WithDefaults(line.config, ReadMachine());
  RETURN_IF_ERROR(server->Reload(config));
  return config;
}

void ReloadAndTell(const std::vector<std::string>& arguments, Server* server) {
  const absl::StatusOr<Config> config = Reload(arguments, server);
  if (!config.ok()) {
    spdlog::warn("nothing reloaded: {}",
                 std::string(config.status().message()));
    return;
  }
  spdlog::set_level(spdlog::level::from_str(config->log_level));
  spdlog::info(
      "reloaded log_level, max_client_calls and max_client_bytes; other flags "
      "need a restart");
}

int Serve(const std::vector<std::string>& arguments, const Config& given) {
  const Config config = WithDefaults(given, ReadMachine());
  TuneMalloc(config);
  TakeLibraryLogs();
  // Never undone: when gRPC's last user ends, gRPC joins a thread that may wait
  // another 10 s in epoll_wait (1.51, its backup poller). Docker would send
  // SIGKILL meanwhile.
  grpc_init();
  const int64_t descriptors = RaiseDescriptorLimit();
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(given);
  if (!server.ok()) {
    spdlog::error("{}", std::string(server.status().message()));
    RemoveSocketFolder(config.remove_at_end);
    return 2;
  }
  spdlog::set_level(spdlog::level::from_str(config.log_level));
  const Config& complete = (*server)->config();
  spdlog::info(
      "convgrad-server {}: {} workers x {} threads, {} MiB for calls, messages "
      "up to {} MiB",
      Version(), complete.workers, complete.threads_per_worker,
      complete.CallBudgetBytes() >> 20, complete.max_message_bytes >> 20);
  spdlog::info("up to {} open descriptors", descriptors);
  if ((*server)->metrics_port() != 0) {
    spdlog::info("metrics on port {}", (*server)->metrics_port());
  }
  if (!(*server)->health_address().empty()) {
    spdlog::info("health at {}", (*server)->health_address());
  }
  if (!complete.regions_listen.empty()) {
    spdlog::info("shared memory at {}, up to {} MiB", complete.regions_listen,
                 complete.max_region_bytes >> 20);
  }
  spdlog::info("listening on {}", absl::StrJoin((*server)->addresses(), ","));
  while (WaitForSignalOrParent(AllSignals(), complete.exit_with_parent) ==
         SIGHUP) {
    ReloadAndTell(arguments, server->get());
  }
  return StopGracefully(*std::move(server));
}

}  // namespace
}  // namespace convgrad

int main(int argc, char** argv) {
  // Blocks the signals first, because gRPC starts threads early, and a signal
  // to a thread that doesn't block it would end the process without a drain.
  const sigset_t signals = convgrad::AllSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  // A write to a log that no one reads, or beyond the limit of a file's size,
  // fails and must not end the process.
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  convgrad::LimitOpenMpSpinning(argv);
  // Debian's Abseil looks for deadlocks at every lock, including gRPC's.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const absl::StatusOr<convgrad::ParsedFlags> line =
      convgrad::ParseFlags(arguments, convgrad::Version());
  if (!line.ok()) {
    std::cerr << "convgrad-server: " << line.status().message() << "\n";
    return 2;
  }
  if (!line->answer.empty()) {
    std::cout << line->answer;
    return 0;
  }
  if (line->config.selftest) {
    // A signal may end the self-test at once, because it has nothing to drain.
    pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
    return convgrad::SelfTestInstead(line->config);
  }
  if (line->config.healthcheck) return convgrad::RunHealthCheck(line->config);
  return convgrad::Serve(arguments, line->config);
}
