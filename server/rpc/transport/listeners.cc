#include "server/rpc/transport/listeners.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "backends/core/steady_now.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/impl/server_builder_option.h"
#include "proto/codec/payload_message.h"
#include "proto/stream_slices.h"
#include "server/rpc/transport/listening_socket.h"

namespace convgrad {
namespace {

// Removes reflection, the only plugin, from one server, because gRPC enables it
// for all servers of the process or for none.
class WithoutReflection final : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments* /*arguments*/) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>*
                         plugins) override {
    plugins->clear();
  }
};

constexpr absl::Duration kHandshakeTimeout = absl::Seconds(20);
// Connections for calls leave these descriptors to snapshots, /metrics, shared
// memory and health.
constexpr int64_t kMostSpareDescriptors = 256;
constexpr absl::Duration kLeastPingInterval = absl::Seconds(10);
constexpr absl::Duration kKeepalive = absl::Seconds(5);
// Longer than a client may need to send what its kernel already has, because
// its answer to a ping follows these bytes.
constexpr absl::Duration kKeepaliveTimeout = absl::Minutes(1);

void SetTime(const char* argument, absl::Duration time,
             grpc::ServerBuilder* builder) {
  builder->AddChannelArgument(
      argument, static_cast<int>(absl::ToInt64Milliseconds(time)));
}

// Limits the cost of a connection before the server checks its calls. A call
// that has sent only its header takes some 14 KB of gRPC's memory. Beyond the
// limit of streams, clients wait until one of their calls ends.
void LimitConnections(const ListenerOptions& options,
                      grpc::ServerBuilder* builder) {
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 256);
  // gRPC's default keeps silent connections for two minutes.
  SetTime(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeTimeout, builder);
  // Clients connect again at their next call. gRPC's default keeps connections
  // without calls for ever, also those whose host has gone, because it doesn't
  // ping them.
  SetTime(GRPC_ARG_MAX_CONNECTION_IDLE_MS, options.max_connection_idle,
          builder);
  // A client whose call waits may send pings to check the connection. gRPC
  // closes the connection at the third ping that comes too early.
  SetTime(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
          kLeastPingInterval, builder);
  // gRPC 1.51 overlooks a reset that comes together with the last bytes: it
  // trusts TCP_INQ, and waits for an edge of epoll that has passed. Calls of a
  // client that crashed would keep their session's turn until they are too
  // slow. gRPC pings connections that have calls; it can't write a ping to a
  // reset connection, and ends it.
  SetTime(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepalive, builder);
  SetTime(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeout, builder);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
}

void Configure(const ListenerOptions& options, grpc::ServerBuilder* builder) {
  LimitConnections(options, builder);
  // gRPC 1.51 checks its own limit only when it has the whole message, and
  // reports it to the call as if the client had left. So calls compare sizes
  // themselves; the quota bounds the bytes that gRPC reads.
  builder->SetMaxReceiveMessageSize(-1);
  // A message has a head beside its payload, and a stream's frame may be larger
  // than the payload limit of unary calls.
  builder->SetMaxSendMessageSize(static_cast<int>(
      std::max(options.max_message_bytes, kMaxFrameBytes) + kMaxHeadBytes));
  // gzip never made float data faster, and decompression would bypass the
  // budget.
  builder->SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder->SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  // A second server on the same port must fail, because it is a mistake.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // The probing of HTTP/2 opens the window of each connection to some 4 MiB.
  // gRPC then buffers that much of messages that the server hasn't admitted: 64
  // connections took 280 MiB. A message that is being read opens the window by
  // itself, so the rate stayed the same without probing.
  builder->AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  // Calls in flight may finish, because gRPC's default grace is infinite.
  if (options.max_connection_age != absl::InfiniteDuration()) {
    SetTime(GRPC_ARG_MAX_CONNECTION_AGE_MS, options.max_connection_age,
            builder);
  }
  // The quota bounds clients that declare little and send much. Messages of
  // correct clients take at most half of it (AdmissionBytes); beyond it gRPC
  // cancels calls. Without it 64 such clients took 2 GiB with a budget of 256
  // MiB.
  builder->SetResourceQuota(*options.quota);
  if (!options.reflection) {
    builder->SetOption(std::make_unique<WithoutReflection>());
  }
}

bool IsUnix(absl::string_view address) {
  return absl::StartsWith(address, "unix:") ||
         absl::StartsWith(address, "unix-abstract:");
}

std::string Resolved(const std::string& address, int port) {
  if (IsUnix(address)) return address;
  return absl::StrCat(address.substr(0, address.rfind(':')), ":", port);
}

absl::Status NotFree(absl::string_view flag, const std::string& address,
                     absl::string_view why) {
  return OutOfRange(flag, absl::StrCat("'", address, "' (", why, ")"),
                    "an address that is free");
}

// Returns a function that adds connections to `traffic` and passes them to the
// server that `builder` makes.
Acceptor::Take TakeFor(
    const std::shared_ptr<grpc::ServerCredentials>& credentials,
    ConnectionTraffic* traffic, grpc::ServerBuilder* builder) {
  using External = grpc::ServerBuilder::experimental_type;
  const std::shared_ptr<grpc::experimental::ExternalConnectionAcceptor> server =
      builder->experimental().AddExternalConnectionAcceptor(
          External::ExternalConnectionType::FROM_FD, credentials);
  return [server, traffic](int socket) {
    traffic->Add(socket, SteadyNow());
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters
        connection;
    connection.fd = socket;
    server->HandleNewConnection(&connection);
  };
}

}  // namespace

absl::StatusOr<std::unique_ptr<Listeners>> Listeners::Start(
    const ListenerOptions& options,
    std::vector<std::unique_ptr<grpc::Service>> services,
    grpc::CallbackGenericService* generic_service, ConnectionTraffic* traffic) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  std::unique_ptr<Listeners> listeners(new Listeners());
  listeners->services_ = std::move(services);
  grpc::ServerBuilder calls;
  Configure(options, &calls);
  for (const auto& service : listeners->services_) {
    calls.RegisterService(service.get());
  }
  calls.RegisterCallbackGenericService(generic_service);
  const auto end_idle = [traffic](int most) {
    return traffic->EndIdle(most, SteadyNow());
  };
  listeners->calls_.acceptor = std::make_unique<Acceptor>(
      kHandshakeTimeout, kMostSpareDescriptors, end_idle);
  RETURN_IF_ERROR(Open("--listen", options.addresses, options.tls, traffic,
                       &calls, &listeners->calls_));
  if (options.health_address.empty()) return listeners;
  grpc::ServerBuilder health;
  LimitConnections(options, &health);
  health.SetOption(std::make_unique<WithoutReflection>());
  health.RegisterCallbackGenericService(&listeners->nothing_);
  listeners->health_.acceptor =
      std::make_unique<Acceptor>(kHandshakeTimeout, 0, end_idle);
  RETURN_IF_ERROR(Open("--health_listen", {options.health_address}, TlsFiles(),
                       traffic, &health, &listeners->health_));
  listeners->health_address_ = listeners->health_.addresses.front();
  return listeners;
}

Listeners::~Listeners() {
  for (Site* site : {&calls_, &health_}) site->acceptor.reset();
  for (Site* site : {&calls_, &health_}) {
    if (site->server == nullptr) continue;
    site->server->Shutdown(std::chrono::system_clock::now());
    site->server->Wait();
  }
}

absl::Status Listeners::Open(absl::string_view flag,
                             const std::vector<std::string>& addresses,
                             const TlsFiles& tls, ConnectionTraffic* traffic,
                             grpc::ServerBuilder* builder, Site* site) {
  const Acceptor::Take take_tcp =
      TakeFor(MakeCredentials(tls), traffic, builder);
  // The permissions of the socket file protect a UNIX socket.
  const Acceptor::Take take_unix =
      TakeFor(grpc::InsecureServerCredentials(), traffic, builder);
  for (const std::string& address : addresses) {
    const bool is_unix = IsUnix(address);
    const auto port = site->acceptor->Listen(
        address, !is_unix && !tls.cert.empty(), is_unix ? take_unix : take_tcp);
    if (!port.ok()) return NotFree(flag, address, port.status().message());
    site->addresses.push_back(Resolved(address, *port));
  }
  site->server = builder->BuildAndStart();
  if (site->server == nullptr) return NotFree(flag, addresses[0], "gRPC");
  site->acceptor->Start();
  return absl::OkStatus();
}

void Listeners::SetServing(const std::string& service, bool serving) {
  for (const Site* site : {&calls_, &health_}) {
    if (site->server == nullptr) continue;
    site->server->GetHealthCheckService()->SetServingStatus(service, serving);
  }
}

}  // namespace convgrad
