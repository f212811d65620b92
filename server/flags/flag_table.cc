#include "server/flags/flag_table.h"

namespace convgrad {
namespace {

// gRPC's limits are ints, and a message has a head beside its payload.
constexpr int64_t kLargestMessage =
    std::numeric_limits<int32_t>::max() - (int64_t{2} << 20);
constexpr int64_t kLargestCache = int64_t{1} << 60;
constexpr int64_t kLargestInt = std::numeric_limits<int>::max();
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

constexpr Flag kFlags[] = {
    {"listen", &Config::listen,
     "addresses for calls: host:port or unix:path, several with commas; port 0 "
     "is any free one"},
    {"metrics_listen", &Config::metrics_listen,
     "host:port of the Prometheus endpoint /metrics; empty for none"},
    {"health_listen", &Config::health_listen,
     "host:port or unix:path that serves grpc.health.v1 alone, in plaintext; "
     "empty: --listen serves it"},
    {"regions_listen", &Config::regions_listen,
     "unix:path of the socket that gives clients of this host and user shared "
     "memory; empty for none"},
    {"otlp_endpoint", &Config::otlp_endpoint,
     "http://host:port or https://host:port of a collector that takes spans by "
     "OTLP over gRPC; empty for none"},

    {"tls_cert", &Config::tls_cert,
     "PEM file of the server's certificate chain: host:port addresses of "
     "--listen speak TLS"},
    {"tls_key", &Config::tls_key, "PEM file of the certificate's key"},
    {"tls_client_ca", &Config::tls_client_ca,
     "PEM file of authorities: a client needs a certificate that one of them "
     "signed; empty: clients need none"},
    {"token_file", &Config::token_file,
     "file of clients, one a line, as NAME ROLE TOKEN, with the roles infer, "
     "train and admin; empty: every client may do everything"},
    {"insecure", &Config::insecure,
     "take plaintext from any host, not only from this one"},

    {"memory_budget_bytes", &Config::memory_budget_bytes,
     "bytes that the process may grow to: 64 MiB for itself, idle buffers "
     "(1/8), caches and calls; 0 for half of RAM or of the cgroup's limit"},
    {"buffer_pool_idle_time",
     &Config::buffer_pool_idle_time,
     "how long the server keeps a buffer that no call uses",
     {1, kMost}},
    {"plan_cache_bytes",
     &Config::plan_cache_bytes,
     "part of the budget for plans that are kept for reuse; -1 for 64 MiB, at "
     "most 1/16 of the budget",
     {0, kLargestCache}},
    {"weight_cache_bytes",
     &Config::weight_cache_bytes,
     "part of the budget for weights in the form that plans compute with, for "
     "a client that sends them again and for networks at inference; -1 for "
     "1/16 of the budget, 0 for none",
     {0, kLargestCache}},
    {"max_message_bytes",
     &Config::max_message_bytes,
     "payload bytes of one request, and of one response; 0 for 1 GiB, at most "
     "what lets two calls of unknown size in at once, with regions four",
     {1, kLargestMessage}},
    {"max_region_bytes", &Config::max_region_bytes,
     "part of the budget for all shared memory; 0 for half of what one message "
     "leaves of the calls' memory"},
    {"max_kept_bytes", &Config::max_kept_bytes,
     "part of the budget for the tensors of all sessions; -1 for half of the "
     "calls' memory, at most what regions and one message leave"},
    {"max_client_share",
     &Config::max_client_share,
     "a client's calls may hold this share of the calls' memory; beyond it, "
     "the client's next call waits until its earlier calls end. If its other "
     "calls hold at most half of the share, one call may have any size. 1 "
     "where a proxy makes all clients one",
     {0, 1}},
    {"max_client_bytes", &Config::max_client_bytes,
     "bytes of memory for the calls of one client, beyond which its calls are "
     "refused; 0: no limit"},
    {"max_client_kept_bytes", &Config::max_client_kept_bytes,
     "bytes that the sessions of one client may keep; 0: no limit"},
    {"max_client_sessions",
     &Config::max_client_sessions,
     "sessions that one client may have open; 0: no limit",
     {0, 1'000'000}},
    {"max_client_calls",
     &Config::max_client_calls,
     "calls that one client may have under way; 0: no limit",
     {0, kLargestInt}},
    {"max_admission_waiters",
     &Config::max_admission_waiters,
     "calls of each priority whose message may wait, unread, for memory; half "
     "of them of one client",
     {0, 1'000'000}},

    {"state_dir", &Config::state_dir,
     "folder that keeps durable sessions when the server stops; one server at "
     "a time uses it. Empty: sessions can't be durable"},
    {"snapshot_interval",
     &Config::snapshot_interval,
     "how old a change of a durable session gets before the server writes the "
     "session to disk; longer if writing would take more than 3.5 % of the "
     "time",
     {1, kMost}},

    {"backends", &Config::backends,
     "backends to use, with commas; empty for all that are compiled in"},
    {"workers",
     &Config::workers,
     "operations that run at once; 0 for one on each NUMA node",
     {1, 1024}},
    {"threads_per_worker",
     &Config::threads_per_worker,
     "threads of one operation; 0 for all usable cores / workers. The bits of "
     "a result may depend on it",
     {1, 1024}},
    {"pin_workers", &Config::pin_workers,
     "give each worker cores of its own, where there are enough"},
    {"queue_capacity",
     &Config::queue_capacity,
     "operations of each priority that may wait for a worker",
     {1, 1'000'000}},
    {"max_macs",
     &Config::max_macs,
     "multiply-adds of one operation",
     {1, kMost}},
    {"max_reference_macs", &Config::max_reference_macs,
     "multiply-adds of one operation on the reference backend"},

    {"default_deadline",
     &Config::default_deadline,
     "deadline of calls that come without one",
     {1, kMost}},
    {"max_deadline",
     &Config::max_deadline,
     "later deadlines of calls count as this one",
     {1, kMost}},
    {"min_client_rate", &Config::min_client_rate,
     "bytes a second that a client sends or takes at least while its call "
     "waits for it, or the call ends; 0: any rate will do"},
    {"unary_idle_timeout",
     &Config::unary_idle_timeout,
     "how much longer than --min_client_rate asks for a unary call waits for "
     "its message, and for its answer to be taken",
     {1, kMost}},
    {"stream_idle_timeout",
     &Config::stream_idle_timeout,
     "how much longer than --min_client_rate asks for a stream waits for its "
     "client",
     {1, kMost}},

    {"self_check_ratio",
     &Config::self_check_ratio,
     "share of backwards whose gradients the server checks by the adjoint "
     "identity; a check costs two forward passes",
     {0, 1}},
    {"prove_at_start", &Config::prove_at_start,
     "hold small problems of every family of operations against the reference "
     "before the server is ready; else each when it is first asked for"},
    {"warmup_file", &Config::warmup_file,
     "file of problems, one problem string a line, whose plans are made before "
     "the server is ready"},

    {"max_connection_age", &Config::max_connection_age,
     "time after which a connection takes no more calls, and closes when its "
     "last one has ended, so that clients spread anew; 0: never"},
    {"drain_delay", &Config::drain_delay,
     "at SIGTERM, time between reporting NOT_SERVING and refusing calls: what "
     "balancers take to notice"},
    {"drain_timeout", &Config::drain_timeout,
     "at SIGTERM, time that accepted calls have to finish; those that wait for "
     "their clients have nine tenths of it"},
    {"exit_with_parent",
     &Config::exit_with_parent,
     "process id of who started the server: within 0.2 s of that process's end "
     "the server stops as at SIGTERM; 0: it outlives it",
     {0, kLargestInt}},
    {"remove_at_end", &Config::remove_at_end,
     "folder of this server's sockets, which is removed with them when the "
     "server stops, unless something else is in it"},
    {"log_level", &Config::log_level, "debug, info, warning, error or off"},

    {"healthcheck", &Config::healthcheck,
     "don't serve: ask the server at --health_listen, or else at the first "
     "--listen address, in plaintext whether it is serving; exit 0 if so, 1 if "
     "not"},
    {"selftest", &Config::selftest,
     "don't serve: prove as at the start and print a table; exit 0 if every "
     "family is computed right, 1 if not"},
};

}  // namespace

absl::Span<const Flag> AllFlags() { return kFlags; }

}  // namespace convgrad
