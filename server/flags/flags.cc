// The command line. The config file is absl's --flagfile: one --flag=value a
// line.
#include <string>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "backends/core/status.h"
#include "server/flags/byte_count.h"
#include "server/flags/config.h"
#include "server/flags/text_file.h"

ABSL_FLAG(std::string, listen, convgrad::Config().listen,
          "where calls are taken: host:port or unix:path, several with commas; "
          "port 0 is any free one");
ABSL_FLAG(std::string, metrics_listen, convgrad::Config().metrics_listen,
          "host:port of the Prometheus endpoint /metrics; empty for none");
ABSL_FLAG(
    std::string, otlp_endpoint, convgrad::Config().otlp_endpoint,
    "http://host:port or https://host:port of a collector that takes spans "
    "by OTLP over gRPC; empty: none are made");
ABSL_FLAG(std::string, regions_listen, convgrad::Config().regions_listen,
          "unix:path of the socket that gives clients of this host and user "
          "shared memory; empty for none");
ABSL_FLAG(convgrad::ByteCount, max_region_bytes,
          convgrad::ByteCount(convgrad::Config().max_region_bytes),
          "bytes of all shared memory together, taken from the budget; 0 for "
          "half of what calls may take, at most what leaves room for a message "
          "of --max_message_bytes");
ABSL_FLAG(convgrad::ByteCount, max_kept_bytes,
          convgrad::ByteCount(convgrad::Config().max_kept_bytes),
          "bytes of all sessions' tensors together, taken from the budget; -1 "
          "for half of what calls may take, at most what leaves room for a "
          "message of --max_message_bytes");
ABSL_FLAG(int, max_client_sessions, convgrad::Config().max_client_sessions,
          "sessions that one client may have open; 0: no limit");
ABSL_FLAG(convgrad::ByteCount, max_client_kept_bytes,
          convgrad::ByteCount(convgrad::Config().max_client_kept_bytes),
          "bytes that the sessions of one client may keep; 0: no limit");
ABSL_FLAG(std::string, health_listen, convgrad::Config().health_listen,
          "host:port or unix:path that serves grpc.health.v1 and nothing else, "
          "in plaintext; empty: health is asked for at --listen");
ABSL_FLAG(std::string, tls_cert, convgrad::Config().tls_cert,
          "PEM file of the server's certificate chain: host:port addresses of "
          "--listen speak TLS");
ABSL_FLAG(std::string, tls_key, convgrad::Config().tls_key,
          "PEM file of its key");
ABSL_FLAG(std::string, tls_client_ca, convgrad::Config().tls_client_ca,
          "PEM file of the authorities, one of which must have signed a "
          "client's certificate; empty: clients need none");
ABSL_FLAG(std::string, token_file, convgrad::Config().token_file,
          "clients, one a line, as NAME ROLE TOKEN, with the roles infer, "
          "train and admin; empty: everybody may do everything");
ABSL_FLAG(bool, insecure, convgrad::Config().insecure,
          "take plaintext from anywhere, not only from this host");
ABSL_FLAG(int, max_client_calls, convgrad::Config().max_client_calls,
          "calls that one client may have under way; 0: no limit");
ABSL_FLAG(convgrad::ByteCount, max_client_bytes,
          convgrad::ByteCount(convgrad::Config().max_client_bytes),
          "bytes of memory that one client's calls may be admitted for; 0: no "
          "limit");
ABSL_FLAG(std::string, backends, convgrad::Config().backends,
          "backends to use, with commas; empty for all that are compiled in");
ABSL_FLAG(int, workers, convgrad::Config().workers,
          "operations that run at once; 0 for one on each NUMA node");
ABSL_FLAG(int, threads_per_worker, convgrad::Config().threads_per_worker,
          "threads of one operation; 0 for all usable cores / workers. The "
          "bits of a result may depend on it");
ABSL_FLAG(bool, pin_workers, convgrad::Config().pin_workers,
          "give each worker cores of its own, where there are enough");
ABSL_FLAG(int, queue_capacity, convgrad::Config().queue_capacity,
          "operations of each priority that may wait for a worker");
ABSL_FLAG(convgrad::ByteCount, memory_budget_bytes,
          convgrad::ByteCount(convgrad::Config().memory_budget_bytes),
          "bytes that the process may grow to: 64 MiB for itself, idle "
          "buffers, plans, and calls; 0 for half of what it may have (RAM or "
          "cgroup limit). This and other flags of bytes take units: 8GiB");
ABSL_FLAG(convgrad::ByteCount, buffer_pool_idle_bytes,
          convgrad::ByteCount(convgrad::Config().buffer_pool_idle_bytes),
          "bytes of free buffers kept for reuse beside those that lie in what "
          "no call has of the budget, part of it; -1 for 1/8 of it");
ABSL_FLAG(absl::Duration, buffer_pool_idle_time,
          convgrad::Config().buffer_pool_idle_time,
          "how long a free buffer is kept that nobody needs");
ABSL_FLAG(convgrad::ByteCount, plan_cache_bytes,
          convgrad::ByteCount(convgrad::Config().plan_cache_bytes),
          "bytes of plans kept for reuse, part of the budget; -1 for 64 MiB, "
          "at most 1/16 of it");
ABSL_FLAG(convgrad::ByteCount, weight_cache_bytes,
          convgrad::ByteCount(convgrad::Config().weight_cache_bytes),
          "bytes of weights kept in the form that plans compute with, for when "
          "the same client sends them again, part of the budget; -1 for 1/16 "
          "of it, 0 for none");
ABSL_FLAG(convgrad::ByteCount, max_message_bytes,
          convgrad::ByteCount(convgrad::Config().max_message_bytes),
          "payload bytes of one request, and of one response; 0 for 1 GiB, at "
          "most what lets two calls of unknown size in at once");
ABSL_FLAG(int, max_admission_waiters, convgrad::Config().max_admission_waiters,
          "calls of each priority whose message may wait, unread, for memory");
ABSL_FLAG(double, max_client_share, convgrad::Config().max_client_share,
          "share of the memory for calls, 0 to 1, beyond which a client's next "
          "call waits for its own earlier ones to end; beside half of that one "
          "call may be of any size");
ABSL_FLAG(absl::Duration, default_deadline, convgrad::Config().default_deadline,
          "deadline of calls that come without one");
ABSL_FLAG(absl::Duration, max_deadline, convgrad::Config().max_deadline,
          "later deadlines of calls count as this one");
ABSL_FLAG(convgrad::ByteCount, min_client_rate,
          convgrad::ByteCount(convgrad::Config().min_client_rate),
          "bytes a second that a client has to send or take at least while its "
          "call waits for it, or the call is ended; 0: any rate will do");
ABSL_FLAG(absl::Duration, unary_idle_timeout,
          convgrad::Config().unary_idle_timeout,
          "how much longer than --min_client_rate asks for a unary call waits "
          "for its client's message, and for its answer to be taken");
ABSL_FLAG(
    absl::Duration, stream_idle_timeout, convgrad::Config().stream_idle_timeout,
    "how long a stream waits for its client beyond what the bytes that it "
    "sends and takes give it at --min_client_rate");
ABSL_FLAG(
    double, self_check_ratio, convgrad::Config().self_check_ratio,
    "share of backwards, 0 to 1, whose gradients the server checks; each check "
    "costs two forward passes");
ABSL_FLAG(int64_t, max_macs, convgrad::Config().max_macs,
          "multiply-adds of one operation");
ABSL_FLAG(int64_t, max_reference_macs, convgrad::Config().max_reference_macs,
          "multiply-adds of one operation on the reference backend");
ABSL_FLAG(std::string, warmup_file, convgrad::Config().warmup_file,
          "problems, one problem string a line, whose plans are made before "
          "the server says that it is ready");
ABSL_FLAG(bool, prove_at_start, convgrad::Config().prove_at_start,
          "hold small problems of every family of operations against the "
          "reference before the server says that it is ready; what wasn't is "
          "when it is first asked for");
ABSL_FLAG(bool, selftest, false,
          "don't serve: prove as at the start, print a table; exit 0 if every "
          "family is computed right as it should be, 1 if not");
ABSL_FLAG(absl::Duration, max_connection_age,
          convgrad::Config().max_connection_age,
          "after which a connection takes no more calls, and closes when its "
          "last one has ended, so that clients spread anew; 0: never");
ABSL_FLAG(absl::Duration, drain_delay, convgrad::Config().drain_delay,
          "at SIGTERM, time between reporting NOT_SERVING and refusing calls: "
          "what balancers take to notice");
ABSL_FLAG(absl::Duration, drain_timeout, convgrad::Config().drain_timeout,
          "at SIGTERM, time that accepted calls have to finish; those that "
          "wait for their clients have nine tenths of it");
ABSL_FLAG(std::string, log_level, convgrad::Config().log_level,
          "debug, info, warning, error or off");
ABSL_FLAG(int, exit_with_parent, convgrad::Config().exit_with_parent,
          "process id of who started the server: when that process has ended, "
          "however it did, the server stops as at SIGTERM; 0: it outlives it");
ABSL_FLAG(std::string, remove_at_end, convgrad::Config().remove_at_end,
          "folder, made for this server's sockets, that is removed with them "
          "when the server stops, unless something else is in it; empty: none");
ABSL_FLAG(bool, healthcheck, false,
          "ask the server at --health_listen, or else at the first --listen "
          "address, in plaintext whether it is serving; exit 0 if so, 1 if "
          "not");

namespace convgrad {
namespace {

absl::Status RereadFlags(absl::string_view text) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    const std::pair<absl::string_view, absl::string_view> words =
        absl::StrSplit(line, absl::MaxSplits('=', 1));
    for (absl::string_view name :
         {"log_level", "max_client_calls", "max_client_bytes"}) {
      if (words.first != absl::StrCat("--", name)) continue;
      std::string error;
      if (absl::FindCommandLineFlag(name)->ParseFrom(words.second, &error)) {
        continue;
      }
      return InvalidField(Reason::kOutOfRange, words.first, words.second,
                          error);
    }
  }
  return absl::OkStatus();
}

}  // namespace

Config ConfigFromFlags() {
  Config config;
  config.listen = absl::GetFlag(FLAGS_listen);
  config.metrics_listen = absl::GetFlag(FLAGS_metrics_listen);
  config.otlp_endpoint = absl::GetFlag(FLAGS_otlp_endpoint);
  config.regions_listen = absl::GetFlag(FLAGS_regions_listen);
  config.max_region_bytes = absl::GetFlag(FLAGS_max_region_bytes).bytes;
  config.max_kept_bytes = absl::GetFlag(FLAGS_max_kept_bytes).bytes;
  config.max_client_sessions = absl::GetFlag(FLAGS_max_client_sessions);
  config.max_client_kept_bytes =
      absl::GetFlag(FLAGS_max_client_kept_bytes).bytes;
  config.health_listen = absl::GetFlag(FLAGS_health_listen);
  config.tls_cert = absl::GetFlag(FLAGS_tls_cert);
  config.tls_key = absl::GetFlag(FLAGS_tls_key);
  config.tls_client_ca = absl::GetFlag(FLAGS_tls_client_ca);
  config.token_file = absl::GetFlag(FLAGS_token_file);
  config.insecure = absl::GetFlag(FLAGS_insecure);
  config.max_client_calls = absl::GetFlag(FLAGS_max_client_calls);
  config.max_client_bytes = absl::GetFlag(FLAGS_max_client_bytes).bytes;
  config.backends = absl::GetFlag(FLAGS_backends);
  config.workers = absl::GetFlag(FLAGS_workers);
  config.threads_per_worker = absl::GetFlag(FLAGS_threads_per_worker);
  config.pin_workers = absl::GetFlag(FLAGS_pin_workers);
  config.queue_capacity = absl::GetFlag(FLAGS_queue_capacity);
  config.memory_budget_bytes = absl::GetFlag(FLAGS_memory_budget_bytes).bytes;
  config.buffer_pool_idle_bytes =
      absl::GetFlag(FLAGS_buffer_pool_idle_bytes).bytes;
  config.buffer_pool_idle_time = absl::GetFlag(FLAGS_buffer_pool_idle_time);
  config.plan_cache_bytes = absl::GetFlag(FLAGS_plan_cache_bytes).bytes;
  config.weight_cache_bytes = absl::GetFlag(FLAGS_weight_cache_bytes).bytes;
  config.max_message_bytes = absl::GetFlag(FLAGS_max_message_bytes).bytes;
  config.max_admission_waiters = absl::GetFlag(FLAGS_max_admission_waiters);
  config.max_client_share = absl::GetFlag(FLAGS_max_client_share);
  config.default_deadline = absl::GetFlag(FLAGS_default_deadline);
  config.max_deadline = absl::GetFlag(FLAGS_max_deadline);
  config.min_client_rate = absl::GetFlag(FLAGS_min_client_rate).bytes;
  config.unary_idle_timeout = absl::GetFlag(FLAGS_unary_idle_timeout);
  config.stream_idle_timeout = absl::GetFlag(FLAGS_stream_idle_timeout);
  config.self_check_ratio = absl::GetFlag(FLAGS_self_check_ratio);
  config.max_macs = absl::GetFlag(FLAGS_max_macs);
  config.max_reference_macs = absl::GetFlag(FLAGS_max_reference_macs);
  config.warmup_file = absl::GetFlag(FLAGS_warmup_file);
  config.prove_at_start = absl::GetFlag(FLAGS_prove_at_start);
  config.max_connection_age = absl::GetFlag(FLAGS_max_connection_age);
  config.drain_delay = absl::GetFlag(FLAGS_drain_delay);
  config.drain_timeout = absl::GetFlag(FLAGS_drain_timeout);
  config.log_level = absl::GetFlag(FLAGS_log_level);
  config.exit_with_parent = absl::GetFlag(FLAGS_exit_with_parent);
  config.remove_at_end = absl::GetFlag(FLAGS_remove_at_end);
  return config;
}

absl::Status RereadFlagFiles(const std::vector<std::string>& arguments) {
  for (absl::string_view argument : arguments) {
    if (!absl::ConsumePrefix(&argument, "-")) continue;
    absl::ConsumePrefix(&argument, "-");
    if (!absl::ConsumePrefix(&argument, "flagfile=")) continue;
    for (absl::string_view path : absl::StrSplit(argument, ',')) {
      ASSIGN_OR_RETURN(const std::string text,
                       ReadTextFile("flagfile", std::string(path)));
      RETURN_IF_ERROR(RereadFlags(text));
    }
  }
  return absl::OkStatus();
}

bool IsSelfTest() { return absl::GetFlag(FLAGS_selftest); }

bool IsHealthCheck() { return absl::GetFlag(FLAGS_healthcheck); }

}  // namespace convgrad
