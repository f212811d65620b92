#include "server/flags/config.h"

#include <cstdio>
#include <limits>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "gtest/gtest.h"
#include "server/flags/flag_table.h"

namespace convgrad {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

Machine SmallMachine() {
  Machine machine;
  machine.cores = {0, 1, 2, 3};
  machine.usable_cores = 4;
  machine.memory_bytes = 8192 * kMiB;
  return machine;
}

Config Complete(Config config = {}) {
  return WithDefaults(std::move(config), SmallMachine());
}

void ExpectRefused(const Config& config, absl::string_view flag) {
  const absl::Status status = config.Validate();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  ASSERT_TRUE(DetailOf(status).has_value());
  EXPECT_EQ(DetailOf(status)->field, flag) << status;
  EXPECT_FALSE(DetailOf(status)->found.empty()) << status;
  EXPECT_FALSE(DetailOf(status)->expected.empty()) << status;
}

TEST(Config, DefaultsFitTheMachine) {
  const Config config = Complete();
  EXPECT_TRUE(config.Validate().ok()) << config.Validate();
  EXPECT_EQ(config.memory_budget_bytes, 4096 * kMiB);
  EXPECT_EQ(config.buffer_pool_idle_bytes, 512 * kMiB);
  EXPECT_EQ(config.plan_cache_bytes, 64 * kMiB);
  EXPECT_EQ(config.weight_cache_bytes, 256 * kMiB);
  EXPECT_GT(config.max_message_bytes, 700 * kMiB);
  EXPECT_EQ(config.threads_per_worker, 4);
}

TEST(Config, DefaultsShrinkWithTheBudget) {
  Config config;
  config.memory_budget_bytes = 128 * kMiB;
  config.workers = 3;
  config = Complete(config);
  EXPECT_TRUE(config.Validate().ok()) << config.Validate();
  EXPECT_LT(config.max_message_bytes, 8 * kMiB);
  EXPECT_GT(config.max_message_bytes, 7 * kMiB);
  EXPECT_EQ(config.threads_per_worker, 1);
  EXPECT_EQ(config.CallBudgetBytes(),
            128 * kMiB - 16 * kMiB - 8 * kMiB - 8 * kMiB - 64 * kMiB);
}

TEST(Config, KeepsWhatIsSet) {
  Config config;
  config.buffer_pool_idle_bytes = 0;
  config.plan_cache_bytes = 0;
  config.threads_per_worker = 7;
  config = Complete(config);
  EXPECT_TRUE(config.Validate().ok()) << config.Validate();
  EXPECT_EQ(config.buffer_pool_idle_bytes, 0);
  EXPECT_EQ(config.plan_cache_bytes, 0);
  EXPECT_EQ(config.threads_per_worker, 7);
}

TEST(Config, RegionsLeaveRoomForOneMessageAndSessions) {
  Config config;
  config.regions_listen = "unix:/run/regions";
  EXPECT_EQ(config.RegionsPath(), "/run/regions");
  const Config complete = Complete(config);
  EXPECT_TRUE(complete.Validate().ok()) << complete.Validate();
  EXPECT_GE(complete.max_region_bytes, complete.CallBudgetBytes() / 3);
  EXPECT_GE(complete.max_kept_bytes, complete.CallBudgetBytes() / 3);
  EXPECT_GE(complete.max_message_bytes, complete.CallBudgetBytes() / 9);
  config.max_message_bytes = 1500 * kMiB;
  const Config large = Complete(config);
  EXPECT_TRUE(large.Validate().ok()) << large.Validate();
  EXPECT_LT(large.max_region_bytes, large.CallBudgetBytes() / 4);
  EXPECT_GE(large.max_kept_bytes, large.max_region_bytes);
  config.max_region_bytes = large.max_region_bytes + large.max_kept_bytes + 2;
  ExpectRefused(Complete(config), "--max_region_bytes");
}

TEST(Config, RefusesRegionsOnOtherSockets) {
  for (const char* address : {"unix:", "/run/regions", "127.0.0.1:7071"}) {
    Config config = Complete();
    config.regions_listen = address;
    ExpectRefused(config, "--regions_listen");
  }
}

TEST(Config, SplitsAddresses) {
  Config config;
  config.listen = "127.0.0.1:1,unix:/run/x.sock,";
  EXPECT_EQ(config.ListenAddresses(),
            (std::vector<std::string>{"127.0.0.1:1", "unix:/run/x.sock"}));
}

TEST(Config, RefusesAddressesThatAreNone) {
  // A larger port would be another one, modulo 65536.
  for (const char* listen :
       {"", " ", "localhost", ":1", "unix:", "a:1,b", "localhost:65536",
        "localhost:-1", "[::1]:http", "unix:/run/a%20b", "unix:/run/a?b",
        "unix:/run/a#b", "unix://run/a"}) {
    Config config = Complete();
    config.listen = listen;
    ExpectRefused(config, "--listen");
  }
  Config config = Complete();
  config.health_listen = "127.0.0.1:70000";
  ExpectRefused(config, "--health_listen");
  config.health_listen = "unix:///run/health";
  for (const char* listen : {"9464", "127.0.0.1:70000", "unix:/run/metrics"}) {
    config.metrics_listen = listen;
    ExpectRefused(config, "--metrics_listen");
  }
  config.metrics_listen = "";
  EXPECT_TRUE(config.Validate().ok());
  for (const char* endpoint :
       {"collector:4317", "http://collector", "http://collector:70000"}) {
    config.otlp_endpoint = endpoint;
    ExpectRefused(config, "--otlp_endpoint");
  }
  config.otlp_endpoint = "http://collector:4317/";
  EXPECT_TRUE(config.Validate().ok());
}

TEST(Config, AdvertisesHostAndPortAlone) {
  for (const char* address : {"server-0.replicas.ns:7070", "10.0.0.1:65535",
                              "[fd00::1]:7070", "my_host:1"}) {
    Config config = Complete();
    config.advertise = address;
    EXPECT_TRUE(config.Validate().ok()) << config.Validate();
  }
  for (const char* address :
       {"server",       ":7070",         "server:",
        "server:0",     "server:65536",  "server:-1",
        "server:+1",    "server: 1",     "unix:/run/x.sock",
        "dns:a:1",      "dns:///a:1",    "a:1,b:1",
        "fd00::1:7070", "[fd00::1:7070", "[]:1",
        "[a b]:1",      "server:7070\n", "http://server:7070",
        "server:07070", "..:1"}) {
    Config config = Complete();
    config.advertise = address;
    ExpectRefused(config, "--advertise");
  }
}

TEST(Config, RefusesMessagesThatTheBudgetCannotHold) {
  Config config;
  config.memory_budget_bytes = 256 * kMiB;
  config.max_message_bytes = 128 * kMiB;
  ExpectRefused(Complete(config), "--memory_budget_bytes");
}

TEST(Config, RefusesABudgetThatLeavesNothingForCalls) {
  Config config;
  config.memory_budget_bytes = 64 * kMiB;
  ExpectRefused(Complete(config), "--memory_budget_bytes");
}

// The kernel would end the process for lack of memory.
TEST(Config, RefusesABudgetBeyondTheMemoryThatThereIs) {
  Machine container = SmallMachine();
  container.memory_name = "the container's memory limit";
  Config config;
  config.memory_budget_bytes = container.memory_bytes;
  EXPECT_TRUE(WithDefaults(config, container).Validate().ok());
  ++config.memory_budget_bytes;
  const Config complete = WithDefaults(config, container);
  ExpectRefused(complete, "--memory_budget_bytes");
  EXPECT_EQ(DetailOf(complete.Validate())->expected,
            "at most 8589934592, the container's memory limit");
}

TEST(Config, NamesTheLimitOfAContainerThatIsTooSmall) {
  Machine container = SmallMachine();
  container.memory_name = "the container's memory limit";
  container.memory_bytes = 128 * kMiB;
  // main completes the config, and the server completes it again.
  const Config config = WithDefaults(WithDefaults({}, container), container);
  ExpectRefused(config, "the container's memory limit");
}

TEST(Config, WhatItSaysOfAMemoryThatIsTooSmallIsEnough) {
  for (int64_t idle : {int64_t{-1}, 32 * kMiB}) {
    for (int64_t bytes : {kMiB, 64 * kMiB, 128 * kMiB}) {
      Machine container = SmallMachine();
      container.memory_bytes = bytes;
      Config config;
      config.buffer_pool_idle_bytes = idle;
      const auto detail = DetailOf(WithDefaults(config, container).Validate());
      ASSERT_TRUE(detail);
      ASSERT_EQ(std::sscanf(detail->expected.c_str(), "%ld bytes",
                            &container.memory_bytes),
                1)
          << detail->expected;
      const Config enough = WithDefaults(config, container);
      EXPECT_TRUE(enough.Validate().ok()) << enough.Validate();
    }
  }
}

TEST(Config, RefusesMessagesBeyondGrpcsLimits) {
  Machine machine = SmallMachine();
  machine.memory_bytes = 100000 * kMiB;
  Config config;
  config.memory_budget_bytes = machine.memory_bytes;
  config.max_message_bytes = 2048 * kMiB;
  ExpectRefused(WithDefaults(config, machine), "--max_message_bytes");
}

TEST(Config, RefusesNumbersOutOfRange) {
  int ranges = 0;
  for (const Flag& flag : AllFlags()) {
    const auto& [least, most] = flag.range;
    std::vector<std::string> outside = {absl::StrCat(least - 1)};
    if (most < std::numeric_limits<int>::max()) {
      outside.push_back(absl::StrCat(most + 1));
    }
    if (std::holds_alternative<absl::Duration Config::*>(flag.field)) {
      outside = {absl::StrCat(least - 1, "ms")};
      if (most < std::numeric_limits<int64_t>::max()) {
        outside.push_back(absl::StrCat(most + 1, "ms"));
        outside.emplace_back("inf");
      }
    }
    for (const std::string& text : outside) {
      Config config = Complete();
      if (ValuesOf(flag).empty() || !SetFlag(flag, text, &config).ok())
        continue;
      ExpectRefused(config, absl::StrCat("--", flag.name));
      ++ranges;
    }
  }
  EXPECT_GT(ranges, 30);
  Config config = Complete();
  config.log_level = "loud";
  ExpectRefused(config, "--log_level");
}

TEST(Config, EveryNodeHasAWorker) {
  Machine machine = SmallMachine();
  machine.nodes = 2;
  const Config config = WithDefaults(Config(), machine);
  EXPECT_EQ(config.workers, 2);
  EXPECT_EQ(config.threads_per_worker, 2);
  // The machine has the cores of three nodes, but a quota of one core.
  machine.nodes = 3;
  machine.usable_cores = 1;
  EXPECT_EQ(WithDefaults(Config(), machine).workers, 1);
}

TEST(Config, SurvivesNoWorkers) {
  Config config;
  config.workers = -1;
  ExpectRefused(Complete(config), "--workers");
}

TEST(Config, PlaintextBeyondThisHostMustBeAskedFor) {
  for (const char* address :
       {"0.0.0.0:7070", "[::]:7070", "10.0.0.1:7070", "example.org:7070",
        "127.0.0.1:1,0.0.0.0:2", "127.example.org:7070"}) {
    Config config = Complete();
    config.listen = address;
    ExpectRefused(config, "--listen");
    config.insecure = true;
    EXPECT_TRUE(config.Validate().ok()) << config.Validate();
    config.insecure = false;
    config.tls_cert = config.tls_key = "file";
    EXPECT_TRUE(config.Validate().ok()) << config.Validate();
  }
  for (const char* address :
       {"127.0.0.1:7070", "127.1.2.3:1", "localhost:7070", "[::1]:7070",
        "unix:/run/convgrad.sock", "unix-abstract:convgrad"}) {
    Config config = Complete();
    config.listen = address;
    EXPECT_TRUE(config.Validate().ok()) << config.Validate();
  }
}

TEST(Config, CertificatesComeWithTheirKeys) {
  Config config = Complete();
  config.tls_cert = "file";
  ExpectRefused(config, "--tls_key");
  config.tls_cert = "";
  config.tls_key = "file";
  ExpectRefused(config, "--tls_cert");
  config.tls_key = "";
  config.tls_client_ca = "file";
  ExpectRefused(config, "--tls_cert");
}

}  // namespace
}  // namespace convgrad
