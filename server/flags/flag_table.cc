#include "server/flags/flag_table.h"

namespace convgrad {
namespace {

// gRPC's limits are ints, and a message has a head beside its payload.
constexpr int64_t kLargestMessage =
    std::numeric_limits<int32_t>::max() - (int64_t{2} << 20);
constexpr int64_t kLargestCache = int64_t{1} << 60;
constexpr int64_t kLargestInt = std::numeric_limits<int>::max();
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
// 24 days. gRPC counts milliseconds in an int.
constexpr int64_t kMostConnectionAge = int64_t{24} * 24 * 3600 * 1000;

constexpr Flag kFlags[] = {
    {"listen", &Config::listen,
     "addresses for calls: host:port or unix:path, separated by commas; port 0 "
     "selects a free port"},
    {"metrics_listen", &Config::metrics_listen,
     "host:port (IPv4) of the Prometheus endpoint /metrics; empty: none"},
    {"health_listen", &Config::health_listen,
     "host:port or unix:path that serves only grpc.health.v1, in plaintext; "
     "empty: --listen serves it"},
    {"regions_listen", &Config::regions_listen,
     "unix:path of the socket that gives shared memory to clients of this host "
     "that run as the server's user or as root; empty: none"},
    {"otlp_endpoint", &Config::otlp_endpoint,
     "http://host:port or https://host:port of a collector that receives spans "
     "by OTLP over gRPC; empty: none"},
    {"advertise", &Config::advertise,
     "host:port at which clients reach this very server, not another replica; "
     "they open a session at any replica, and then call the replica that has "
     "it "
     "at this address; empty: at the address at which they opened it"},

    {"tls_cert", &Config::tls_cert,
     "PEM file of the server's certificate chain; with it, the host:port "
     "addresses of --listen speak TLS"},
    {"tls_key", &Config::tls_key, "PEM file of the certificate's key"},
    {"tls_client_ca", &Config::tls_client_ca,
     "PEM file of authorities; a client needs a certificate that one of them "
     "signed; empty: clients need none"},
    {"token_file", &Config::token_file,
     "file of clients, one per line as NAME ROLE TOKEN; the roles are infer, "
     "train and admin; empty: every client may do everything"},
    {"insecure", &Config::insecure,
     "accept plaintext from any host, not only from this one"},

    {"memory_budget_bytes", &Config::memory_budget_bytes,
     "bytes that the process may use: 64 MiB for itself, idle buffers (1/8), "
     "caches and calls; 0: half of RAM or of the cgroup's limit, also when the "
     "limit changes"},
    {"buffer_pool_idle_time",
     &Config::buffer_pool_idle_time,
     "time for which the server keeps a buffer that no call uses",
     {1, kMost}},
    {"plan_cache_bytes",
     &Config::plan_cache_bytes,
     "part of the budget for plans that the server keeps for reuse; -1: 64 "
     "MiB, but at most 1/16 of the budget",
     {0, kLargestCache}},
    {"weight_cache_bytes",
     &Config::weight_cache_bytes,
     "part of the budget for weights in the form that plans need, for clients "
     "that send the same weights again and for networks at inference; -1: 1/16 "
     "of the budget; 0: none",
     {0, kLargestCache}},
    {"max_message_bytes",
     &Config::max_message_bytes,
     "payload bytes of one request and of one response; 0: 1 GiB, or less in a "
     "small budget, so that two calls of unknown size fit in it, with regions "
     "four",
     {1, kLargestMessage}},
    {"max_region_bytes", &Config::max_region_bytes,
     "part of the budget for all shared memory; 0: half of the calls' memory "
     "that one message leaves"},
    {"max_kept_bytes", &Config::max_kept_bytes,
     "part of the budget for the tensors of all sessions; -1: half of the "
     "calls' memory, but at most as much as regions and one message leave"},
    {"max_client_share",
     &Config::max_client_share,
     "share of the calls' memory that the calls of one client may hold; beyond "
     "it, the client's next call waits until its earlier calls end. One call "
     "may have any size if the client's other calls hold at most half of the "
     "share. Use 1 if a proxy makes all clients look like one",
     {0, 1}},
    {"max_client_bytes", &Config::max_client_bytes,
     "bytes of memory that the calls of one client may hold; the server "
     "refuses calls beyond it; 0: no limit"},
    {"max_client_kept_bytes", &Config::max_client_kept_bytes,
     "bytes that the sessions of one client may keep; 0: no limit"},
    {"max_client_sessions",
     &Config::max_client_sessions,
     "sessions that one client may have open; 0: no limit",
     {0, 1'000'000}},
    {"max_client_calls",
     &Config::max_client_calls,
     "calls that one client may have in flight; 0: no limit",
     {0, kLargestInt}},
    {"max_admission_waiters",
     &Config::max_admission_waiters,
     "calls of each priority that may wait for memory before the server reads "
     "their message; one client may have half of them",
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
     "backends to use, separated by commas; empty: all that are compiled in"},
    {"workers",
     &Config::workers,
     "operations that run at once; 0: one for each NUMA node",
     {1, 1024}},
    {"threads_per_worker",
     &Config::threads_per_worker,
     "threads that compute one operation; 0: the usable cores divided by "
     "--workers. The bits of a result may depend on it",
     {1, 1024}},
    {"pin_workers", &Config::pin_workers,
     "give each worker its own cores, if there are enough"},
    {"queue_capacity",
     &Config::queue_capacity,
     "operations of each priority that may wait for a worker; a client that "
     "has none there may add one",
     {1, 1'000'000}},
    {"max_macs",
     &Config::max_macs,
     "limit on the multiply-adds of one operation",
     {1, kMost}},
    {"max_reference_macs", &Config::max_reference_macs,
     "limit on the multiply-adds of one operation on the reference backend"},
    {"fast_convolutions", &Config::fast_convolutions,
     "compute 3x3 convolutions of networks by Winograd's algorithm unless a "
     "run "
     "forbids it; if false, compute them directly, and refuse a run that asks "
     "for fast=true"},

    {"default_deadline",
     &Config::default_deadline,
     "deadline of calls that have none",
     {1, kMost}},
    {"max_deadline",
     &Config::max_deadline,
     "longest deadline; the server shortens longer ones to it",
     {1, kMost}},
    {"min_client_rate", &Config::min_client_rate,
     "bytes per second that a client must send or take while its call waits "
     "for it; otherwise the server ends the call; 0: no minimum"},
    {"unary_idle_timeout",
     &Config::unary_idle_timeout,
     "time beyond that of --min_client_rate for which a unary call waits for "
     "its message, and for the client to take its answer",
     {1, kMost}},
    {"stream_idle_timeout",
     &Config::stream_idle_timeout,
     "time beyond that of --min_client_rate for which a stream waits for its "
     "client",
     {1, kMost}},

    {"self_check_ratio",
     &Config::self_check_ratio,
     "share of backward calls whose gradients the server checks by the adjoint "
     "identity; a check costs two forward passes",
     {0, 1}},
    {"prove_at_start", &Config::prove_at_start,
     "prove every family of operations before the server is ready, by "
     "comparing small problems with the reference; if false, prove each family "
     "at its first use"},
    {"warmup_file", &Config::warmup_file,
     "file of problems, one problem string per line; the server makes their "
     "plans before it is ready"},

    {"max_connection_age",
     &Config::max_connection_age,
     "age at which a connection accepts no more calls; it closes when its last "
     "call has ended, so that clients spread over servers again; 0: no limit",
     {0, kMostConnectionAge}},
    {"drain_delay", &Config::drain_delay,
     "at SIGTERM, time between reporting NOT_SERVING and refusing calls, in "
     "which load balancers react"},
    {"drain_timeout", &Config::drain_timeout,
     "at SIGTERM, time that accepted calls have to finish; calls that wait for "
     "their clients have nine tenths of it"},
    {"exit_with_parent",
     &Config::exit_with_parent,
     "id of the process that started the server; within 0.2 s of that "
     "process's end the server stops as at SIGTERM; 0: it runs on",
     {0, kLargestInt}},
    {"remove_at_end", &Config::remove_at_end,
     "folder of this server's sockets; the server removes it when it stops, "
     "unless it contains anything else"},
    {"log_level", &Config::log_level, "debug, info, warning, error or off"},

    {"healthcheck", &Config::healthcheck,
     "don't serve; ask the server at --health_listen, or else at the first "
     "--listen address, in plaintext whether it is serving; exit status 0 if "
     "it is, 1 if not"},
    {"selftest", &Config::selftest,
     "don't serve; prove every family of operations and print a table; exit "
     "status 0 if all are right, 1 if not"},
};

}  // namespace

absl::Span<const Flag> AllFlags() { return kFlags; }

}  // namespace convgrad
