#include "client/cpp/replicas.h"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/calls/rpc_status.h"
#include "client/cpp/credentials.h"

namespace convgrad {
namespace {

// Timeout of each replica while others haven't been asked.
constexpr absl::Duration kBriefTime = absl::Seconds(2);

using Addresses = std::vector<std::string>;

// Returns the address as a target of gRPC.
std::string TargetOf(const addrinfo& entry) {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (getnameinfo(entry.ai_addr, entry.ai_addrlen, host.data(), host.size(),
                  port.data(), port.size(),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "";
  }
  return entry.ai_family == AF_INET
             ? absl::StrCat("ipv4:", host.data(), ":", port.data())
             : absl::StrCat("ipv6:[", host.data(), "]:", port.data());
}

// Returns the host's addresses as targets; none if it can't be found, because
// gRPC's error says more.
Addresses Resolve(const HostAndPort& server) {
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_ADDRCONFIG;  // a host may have IPv6 alone
  addrinfo* entries = nullptr;
  if (getaddrinfo(server.host.c_str(), server.port.c_str(), &wanted,
                  &entries) != 0) {
    return {};
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(entries,
                                                             &freeaddrinfo);
  // A server's IPv6 address beside its IPv4 address doesn't make it two
  // servers.
  int family = AF_INET6;
  for (const addrinfo* entry = entries; entry; entry = entry->ai_next) {
    family = std::min(family, entry->ai_family);
  }
  Addresses found;
  for (const addrinfo* entry = entries; entry; entry = entry->ai_next) {
    if (entry->ai_family != family) continue;
    std::string target = TargetOf(*entry);
    if (target.empty()) continue;
    if (std::find(found.begin(), found.end(), target) == found.end()) {
      found.push_back(std::move(target));
    }
  }
  return found;
}

// Returns whether a server that answered so may still have the session.
bool MayHaveIt(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsCancelled(status) ||  // as RetryPolicy::DelayAfter says
         PushbackOf(status).has_value();
}

}  // namespace

std::vector<ClientOptions> ReplicasOf(const ClientOptions& options) {
  std::vector<ClientOptions> replicas;
  for (const std::string& server : ServersOf(options)) {
    ClientOptions one = options;
    one.server = server;
    const std::optional<HostAndPort> split = SplitServer(server);
    const Addresses addresses =
        split && !IsOnThisHost(server) ? Resolve(*split) : Addresses();
    if (addresses.size() < 2) {
      replicas.push_back(one);
      continue;
    }
    if (one.server_name.empty()) one.server_name = split->host;
    for (const std::string& address : addresses) {
      one.server = address;
      replicas.push_back(one);
    }
  }
  return replicas;
}

absl::Status AskForSession(
    std::vector<ClientOptions> replicas, absl::Time deadline,
    absl::FunctionRef<absl::Status(const ClientOptions&, absl::Time)> ask) {
  bool brief = replicas.size() > 1;
  while (true) {
    std::vector<ClientOptions> away;
    absl::Status unreachable;
    absl::Status unknown;
    for (const ClientOptions& replica : replicas) {
      absl::Status status =
          ask(replica,
              brief ? std::min(deadline, absl::Now() + kBriefTime) : deadline);
      if (absl::IsNotFound(status)) {
        unknown = status;
      } else if (MayHaveIt(status)) {
        away.push_back(replica);
        unreachable = status;
      } else {
        return status;
      }
    }
    if (away.empty()) return unknown;
    if (!brief) return unreachable;
    replicas = std::move(away);
    brief = false;
  }
}

}  // namespace convgrad
