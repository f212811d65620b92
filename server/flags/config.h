// What the server is told: its flags, as one value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/machine/machine.h"

namespace convgrad {

// The memory that a budget has to fit in.
struct MemoryLimit {
  int64_t bytes = 0;  // 0: unknown
  std::string name;   // for an operator
};

// Value type. Each field is the flag of that name; flags' help texts say more.
// 0 where noted stands for what WithDefaults works out.
struct Config {
  std::string listen = "127.0.0.1:7070";
  std::string metrics_listen = "127.0.0.1:9464";
  // http://host:port or https://host:port; empty: no spans are made.
  std::string otlp_endpoint;
  std::string regions_listen;  // unix:PATH; empty: no shared memory
  std::string health_listen;   // empty: health is asked for at `listen`
  std::string backends;        // empty: all that are compiled in

  // Who may connect and call. Paths; empty: none.
  std::string tls_cert;
  std::string tls_key;
  std::string tls_client_ca;
  std::string token_file;
  bool insecure = false;
  int max_client_calls = 0;      // 0: no limit
  int64_t max_client_bytes = 0;  // 0: no limit

  int workers = 0;             // 0: one for each NUMA node
  int threads_per_worker = 0;  // 0: usable cores / workers
  bool pin_workers = true;
  int queue_capacity = 64;

  int64_t memory_budget_bytes = 0;      // 0: half the memory limit
  int64_t buffer_pool_idle_bytes = -1;  // -1: 1/8 of the budget
  absl::Duration buffer_pool_idle_time = absl::Minutes(1);
  int64_t plan_cache_bytes = -1;    // -1: 64 MiB, at most 1/16 of the budget
  int64_t weight_cache_bytes = -1;  // -1: 1/16 of the budget
  // 0: 1 GiB, at most what lets two calls of unknown size in at once.
  int64_t max_message_bytes = 0;
  int max_admission_waiters = 1024;
  double max_client_share = 0.5;  // of what calls may hold, 0 to 1
  // 0: half of what calls may hold, at most what leaves room for one message.
  int64_t max_region_bytes = 0;
  // Of all sessions together; -1: half of what calls may hold, at most
  // MostKeptBytes.
  int64_t max_kept_bytes = -1;
  int max_client_sessions = 64;       // 0: no limit
  int64_t max_client_kept_bytes = 0;  // 0: no limit

  absl::Duration default_deadline = absl::Minutes(10);
  absl::Duration max_deadline = absl::Hours(1);
  int64_t min_client_rate = int64_t{256} << 10;  // bytes a second; 0: any
  absl::Duration unary_idle_timeout = absl::Seconds(10);
  absl::Duration stream_idle_timeout = absl::Minutes(1);
  // Share of backwards that the server checks of its own accord, 0 to 1.
  double self_check_ratio = 0;
  int64_t max_macs = 10'000'000'000'000;
  int64_t max_reference_macs = 1'000'000'000;

  std::string warmup_file;  // empty: none
  bool prove_at_start = true;
  // After which a connection takes no more calls; 0: never.
  absl::Duration max_connection_age = absl::ZeroDuration();
  absl::Duration drain_delay = absl::ZeroDuration();
  absl::Duration drain_timeout = absl::Seconds(30);
  std::string log_level = "info";
  int exit_with_parent = 0;   // process id; 0: the server outlives its parent
  std::string remove_at_end;  // a folder; empty: none

  // No flag: WithDefaults takes it from the machine.
  MemoryLimit memory_limit;

  // Returns the path of `regions_listen`, empty if there is none.
  std::string RegionsPath() const;

  // Returns the addresses of `listen`.
  std::vector<std::string> ListenAddresses() const;

  // Returns the bytes that calls may hold at once: the budget without what idle
  // buffers, plans and the process itself take.
  int64_t CallBudgetBytes() const;

  // Returns the most that sessions may keep: what leaves room for regions and
  // for one message. Requires: WithDefaults.
  int64_t MostKeptBytes() const;

  // Errors: kInvalidArgument naming flag, found and expected.
  // Requires: WithDefaults.
  absl::Status Validate() const;
};

// Returns `config` with everything worked out that it leaves open.
Config WithDefaults(Config config, const Machine& machine);

// Returns the flags' values. Requires: absl::ParseCommandLine.
Config ConfigFromFlags();

// Reads the --flagfile files of the command line again, for flags that can
// change while the server runs: log_level, max_client_calls, max_client_bytes.
// Errors: kInvalidArgument naming the file or the flag.
absl::Status RereadFlagFiles(const std::vector<std::string>& arguments);

// True if the process is to ask a running server how it is.
bool IsHealthCheck();

// True if the process is to prove its backends instead of serving.
bool IsSelfTest();

}  // namespace convgrad
