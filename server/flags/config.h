// `Config` holds the values of all flags.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/machine/machine.h"

namespace convgrad {

// The memory limit of the budget.
struct MemoryLimit {
  int64_t bytes = 0;  // 0: unknown
  std::string name;   // The limit's name in errors.
};

// Value type. Each field is the flag of that name, which flag_table.cc
// explains; its value here is the flag's default. WithDefaults replaces a 0 or
// -1 that stands for a computed value.
struct Config {
  std::string listen = "127.0.0.1:7070";
  std::string metrics_listen = "127.0.0.1:9464";
  std::string health_listen;
  std::string regions_listen;
  std::string otlp_endpoint;
  std::string advertise;

  std::string tls_cert;
  std::string tls_key;
  std::string tls_client_ca;
  std::string token_file;
  bool insecure = false;

  int64_t memory_budget_bytes = 0;
  absl::Duration buffer_pool_idle_time = absl::Minutes(1);
  int64_t plan_cache_bytes = -1;
  int64_t weight_cache_bytes = -1;
  int64_t max_message_bytes = 0;
  int64_t max_region_bytes = 0;
  int64_t max_kept_bytes = -1;
  double max_client_share = 0.5;
  int64_t max_client_bytes = 0;
  int64_t max_client_kept_bytes = 0;
  int max_client_sessions = 64;
  int max_client_calls = 0;
  int max_admission_waiters = 1024;

  std::string state_dir;
  absl::Duration snapshot_interval = absl::Minutes(1);

  std::string backends;
  int workers = 0;
  int threads_per_worker = 0;
  bool pin_workers = true;
  int queue_capacity = 64;
  int64_t max_macs = 10'000'000'000'000;
  int64_t max_reference_macs = 1'000'000'000;
  bool fast_convolutions = true;

  absl::Duration default_deadline = absl::Minutes(10);
  absl::Duration max_deadline = absl::Hours(1);
  int64_t min_client_rate = int64_t{256} << 10;
  absl::Duration unary_idle_timeout = absl::Seconds(10);
  absl::Duration stream_idle_timeout = absl::Minutes(1);

  double self_check_ratio = 0;
  bool prove_at_start = true;
  std::string warmup_file;

  absl::Duration max_connection_age;
  absl::Duration drain_delay;
  absl::Duration drain_timeout = absl::Seconds(30);
  int exit_with_parent = 0;
  std::string remove_at_end;
  std::string log_level = "info";

  bool healthcheck = false;
  bool selftest = false;

  // Not a flag. The bytes of free buffers that are kept beside the calls' share
  // of the budget; -1: 1/8 of the budget.
  int64_t buffer_pool_idle_bytes = -1;
  // Not a flag. WithDefaults reads it from the machine.
  MemoryLimit memory_limit;
  // Not a flag. A prefix of the paths of /proc and /sys, for tests.
  std::string machine_root;

  // Returns the path of `regions_listen`; "" if there is none.
  std::string RegionsPath() const;

  // Returns the addresses of `listen`.
  std::vector<std::string> ListenAddresses() const;

  // Returns the bytes that calls may hold at once: the budget without idle
  // buffers, caches and the process itself.
  int64_t CallBudgetBytes() const;

  // Returns the least value of CallBudgetBytes that is valid: two small calls.
  static int64_t LeastCallBudgetBytes();

  // Returns the most bytes that sessions may keep, so that regions and one
  // message have room. Requires: WithDefaults.
  int64_t MostKeptBytes() const;

  // Checks all values. Requires: WithDefaults.
  // Errors: kInvalidArgument naming flag, found and expected.
  absl::Status Validate() const;
};

// Returns `config` with computed values for the flags that are unset.
// Thread-safe.
Config WithDefaults(Config config, const Machine& machine);

}  // namespace convgrad
