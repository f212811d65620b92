#include "server/flags/config.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "proto/server_address.h"
#include "server/flags/flag_table.h"
#include "server/memory/admission.h"

namespace convgrad {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// Memory of the process beside calls, buffers and plans: code, stacks, heap,
// and gRPC's buffers. Measured: 32 MiB idle, 53 MiB with 64 connections.
constexpr int64_t kProcessBytes = 64 * kMiB;

absl::Status CheckRange(absl::string_view flag, int64_t found, int64_t min,
                        int64_t max) {
  if (min <= found && found <= max) return absl::OkStatus();
  return OutOfRange(absl::StrCat("--", flag), found,
                    absl::StrCat(min, " to ", max));
}

bool IsPort(absl::string_view text) {
  int port = 0;
  return absl::c_all_of(text, absl::ascii_isdigit) &&
         absl::SimpleAtoi(text, &port) && port < 1 << 16;
}

bool IsUnix(absl::string_view address) {
  return (absl::ConsumePrefix(&address, "unix:") ||
          absl::ConsumePrefix(&address, "unix-abstract:")) &&
         !address.empty();
}

bool IsTcp(absl::string_view address) {
  const size_t colon = address.rfind(':');
  return colon != absl::string_view::npos && 0 < colon &&
         IsPort(address.substr(colon + 1));
}

// Returns whether only this host can reach `address`.
bool IsLocal(absl::string_view address) {
  const absl::string_view host = address.substr(0, address.rfind(':'));
  // A name may begin like an address: 127.example.org.
  const bool is_ipv4 =
      host.find_first_not_of("0123456789.") == absl::string_view::npos;
  return IsUnix(address) || host == "localhost" || host == "[::1]" ||
         (is_ipv4 && absl::StartsWith(host, "127."));
}

bool IsEndpoint(absl::string_view endpoint) {
  return (absl::ConsumePrefix(&endpoint, "http://") ||
          absl::ConsumePrefix(&endpoint, "https://")) &&
         IsTcp(absl::StripSuffix(endpoint, "/"));
}

// Returns the error for the text of a flag unless it `is_valid`.
absl::Status CheckText(absl::string_view flag, absl::string_view text,
                       bool is_valid, absl::string_view expected) {
  if (is_valid) return absl::OkStatus();
  return OutOfRange(flag, absl::StrCat("'", text, "'"), expected);
}

absl::Status CheckListening(absl::string_view flag, absl::string_view address) {
  if (IsUnix(address)) {
    // gRPC decodes % at the server, and all three at clients, so they would
    // mean other paths than they seem to. Clients refuse unix:// before a
    // relative path, and the server would listen in the root folder.
    const bool is_plain =
        address.find_first_of("%?#") == absl::string_view::npos &&
        (!absl::StartsWith(address, "unix://") ||
         absl::StartsWith(address, "unix:///"));
    return CheckText(flag, address, is_plain,
                     "unix:PATH without %, ? and #, or unix:///PATH");
  }
  return CheckText(flag, address, IsTcp(address),
                   "host:port with a port of 0 to 65535, or unix:path");
}

absl::Status CheckAddresses(const Config& config) {
  for (const std::string& address : config.ListenAddresses()) {
    RETURN_IF_ERROR(CheckListening("--listen", address));
  }
  const absl::string_view metrics = config.metrics_listen;
  RETURN_IF_ERROR(
      CheckText("--metrics_listen", metrics,
                metrics.empty() || (IsTcp(metrics) && !IsUnix(metrics)),
                "host:port with a port of 0 to 65535"));
  if (!config.health_listen.empty()) {
    RETURN_IF_ERROR(CheckListening("--health_listen", config.health_listen));
  }
  const absl::string_view endpoint = config.otlp_endpoint;
  RETURN_IF_ERROR(CheckText("--otlp_endpoint", endpoint,
                            endpoint.empty() || IsEndpoint(endpoint),
                            "http://host:port or https://host:port"));
  // Clients send tokens to the address, so it must be nothing but host and
  // port.
  const absl::string_view advertised = config.advertise;
  return CheckText("--advertise", advertised,
                   advertised.empty() || IsHostAndPort(advertised),
                   "host:port without a scheme, with a port of 1 to 65535");
}

absl::Status CheckSecurity(const Config& config) {
  if (config.tls_cert.empty() != config.tls_key.empty()) {
    return Missing(config.tls_key.empty() ? "--tls_key" : "--tls_cert",
                   "nothing", "a PEM file: both or none");
  }
  if (!config.tls_client_ca.empty() && config.tls_cert.empty()) {
    return Missing("--tls_cert", "nothing",
                   "a PEM file, as --tls_client_ca has one");
  }
  if (!config.tls_cert.empty() || config.insecure) return absl::OkStatus();
  for (const std::string& address : config.ListenAddresses()) {
    if (IsLocal(address)) continue;
    return OutOfRange(
        "--listen", absl::StrCat("'", address, "'"),
        "a loopback address or unix:path, or --tls_cert, or --insecure to have "
        "strangers read and change what is sent");
  }
  return absl::OkStatus();
}

// Returns a budget that leaves room for two small calls, however the other
// parts grow with it. The parts that no flag sets are 1/4 of it (WithDefaults).
int64_t SufficientBudget(const Config& config) {
  const int64_t others = config.memory_budget_bytes - config.CallBudgetBytes();
  return (others + Config::LeastCallBudgetBytes()) / 3 * 4 + 4;
}

// Checks that the budget has room for two small calls and is within the memory
// limit.
// Errors: kInvalidArgument naming --memory_budget_bytes, or naming the memory
// limit if the budget was computed from it.
absl::Status CheckBudget(const Config& config) {
  const MemoryLimit& limit = config.memory_limit;
  const int64_t budget = config.memory_budget_bytes;
  const bool is_too_small =
      config.CallBudgetBytes() < Config::LeastCallBudgetBytes();
  const int64_t sufficient = SufficientBudget(config);
  if (is_too_small && budget == limit.bytes / 2) {
    return OutOfRange(
        limit.name,
        absl::StrCat(limit.bytes, " bytes, of which half are the budget"),
        absl::StrCat(2 * sufficient,
                     " bytes, or --memory_budget_bytes=", sufficient));
  }
  if (is_too_small) {
    return OutOfRange("--memory_budget_bytes", budget,
                      absl::StrCat(sufficient, " or more"));
  }
  const int64_t most = limit.bytes == 0 ? kUncountableBytes : limit.bytes;
  if (budget <= most) return absl::OkStatus();
  // Beyond the limit, the kernel would end the process when calls fill the
  // budget.
  return OutOfRange("--memory_budget_bytes", budget,
                    absl::StrCat("at most ", most, ", ", limit.name));
}

absl::Status CheckMemory(const Config& config) {
  RETURN_IF_ERROR(CheckBudget(config));
  const int64_t needed = AdmissionBytes(config.max_message_bytes);
  if (needed <= config.CallBudgetBytes()) return absl::OkStatus();
  return OutOfRange(
      "--memory_budget_bytes",
      absl::StrCat(config.memory_budget_bytes, ", of which ",
                   config.CallBudgetBytes(), " are left for calls"),
      absl::StrCat("at least ", needed,
                   " for calls: what one message of --max_message_bytes (",
                   config.max_message_bytes, ") takes"));
}

// Regions exist as long as their clients want. The rest of the budget must have
// room for any message, because a message could otherwise wait for ever.
absl::Status CheckRegions(const Config& config) {
  if (config.regions_listen.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(CheckText("--regions_listen", config.regions_listen,
                            !config.RegionsPath().empty(), "unix:path"));
  return CheckRange(
      "max_region_bytes", config.max_region_bytes, 1,
      config.CallBudgetBytes() - AdmissionBytes(config.max_message_bytes));
}

}  // namespace

std::string Config::RegionsPath() const {
  absl::string_view path = regions_listen;
  return absl::ConsumePrefix(&path, "unix:") ? std::string(path) : "";
}

std::vector<std::string> Config::ListenAddresses() const {
  return absl::StrSplit(listen, ',', absl::SkipWhitespace());
}

int64_t Config::CallBudgetBytes() const {
  return memory_budget_bytes - buffer_pool_idle_bytes - plan_cache_bytes -
         weight_cache_bytes - kProcessBytes;
}

int64_t Config::LeastCallBudgetBytes() { return 2 * AdmissionBytes(64); }

int64_t Config::MostKeptBytes() const {
  const int64_t regions = regions_listen.empty() ? 0 : max_region_bytes;
  return std::max(int64_t{0}, CallBudgetBytes() - regions -
                                  AdmissionBytes(max_message_bytes));
}

absl::Status Config::Validate() const {
  if (ListenAddresses().empty()) {
    return Missing("--listen", "nothing",
                   "host:port or unix:path, or several with commas");
  }
  RETURN_IF_ERROR(CheckAddresses(*this));
  RETURN_IF_ERROR(CheckSecurity(*this));
  for (const Flag& flag : AllFlags()) RETURN_IF_ERROR(CheckFlag(flag, *this));
  RETURN_IF_ERROR(CheckMemory(*this));
  RETURN_IF_ERROR(CheckRegions(*this));
  RETURN_IF_ERROR(
      CheckRange("max_kept_bytes", max_kept_bytes, 0, MostKeptBytes()));
  constexpr absl::string_view kLevels[] = {"debug", "info", "warning", "error",
                                           "off"};
  if (!absl::c_linear_search(kLevels, log_level)) {
    return InvalidEnum("--log_level", absl::StrCat("'", log_level, "'"),
                       "debug, info, warning, error or off");
  }
  return absl::OkStatus();
}

Config WithDefaults(Config config, const Machine& machine) {
  if (config.workers == 0) {
    config.workers = std::min(machine.nodes, machine.usable_cores);
  }
  if (config.threads_per_worker == 0 && config.workers > 0) {
    config.threads_per_worker =
        std::max(1, machine.usable_cores / config.workers);
  }
  config.memory_limit.bytes = machine.memory_bytes;
  config.memory_limit.name = machine.memory_name;
  if (config.memory_budget_bytes == 0) {
    config.memory_budget_bytes = machine.memory_bytes / 2;
  }
  if (config.buffer_pool_idle_bytes == -1) {
    config.buffer_pool_idle_bytes = config.memory_budget_bytes / 8;
  }
  if (config.plan_cache_bytes == -1) {
    config.plan_cache_bytes =
        std::min(64 * kMiB, config.memory_budget_bytes / 16);
  }
  if (config.weight_cache_bytes == -1) {
    config.weight_cache_bytes = config.memory_budget_bytes / 16;
  }
  if (config.max_message_bytes == 0) {
    // Regions and sessions share the memory that one message leaves.
    const int64_t share =
        config.CallBudgetBytes() / (config.regions_listen.empty() ? 2 : 4);
    config.max_message_bytes =
        std::clamp<int64_t>(LargestAdmissible(share), 1, 1024 * kMiB);
  }
  if (config.max_region_bytes == 0) {
    const int64_t left =
        config.CallBudgetBytes() - AdmissionBytes(config.max_message_bytes);
    config.max_region_bytes = std::max<int64_t>(left / 2, 1);
  }
  if (config.max_kept_bytes == -1) {
    config.max_kept_bytes = std::clamp<int64_t>(config.CallBudgetBytes() / 2, 0,
                                                config.MostKeptBytes());
  }
  return config;
}

}  // namespace convgrad
