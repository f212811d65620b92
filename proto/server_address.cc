#include "proto/server_address.h"

#include <arpa/inet.h>

#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace convgrad {
namespace {

// DNS allows no more.
constexpr size_t kLongestName = 253;
constexpr size_t kLongestLabel = 63;

bool IsPort(absl::string_view text) {
  int port = 0;
  return !text.empty() && text[0] != '0' &&
         absl::c_all_of(text, absl::ascii_isdigit) &&
         absl::SimpleAtoi(text, &port) && port < 1 << 16;
}

bool IsIpv6(absl::string_view text) {
  in6_addr address;
  return text.size() < INET6_ADDRSTRLEN &&
         inet_pton(AF_INET6, std::string(text).c_str(), &address) == 1;
}

bool IsLabel(absl::string_view label) {
  const auto is_allowed = [](char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '_';
  };
  return !label.empty() && label.size() <= kLongestLabel &&
         absl::c_all_of(label, is_allowed);
}

bool IsName(absl::string_view name) {
  absl::ConsumeSuffix(&name, ".");
  return name.size() <= kLongestName &&
         absl::c_all_of(absl::StrSplit(name, '.'), IsLabel);
}

}  // namespace

bool HasOtherScheme(absl::string_view target) {
  for (const absl::string_view scheme :
       {"unix:", "unix-abstract:", "ipv4:", "ipv6:", "vsock:", "xds:"}) {
    if (absl::StartsWith(target, scheme)) return true;
  }
  return false;
}

bool IsHostAndPort(absl::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos || HasOtherScheme(address) ||
      absl::StartsWith(address, "dns:") || !IsPort(address.substr(colon + 1))) {
    return false;
  }
  absl::string_view host = address.substr(0, colon);
  if (!absl::ConsumePrefix(&host, "[")) return IsName(host);
  return absl::ConsumeSuffix(&host, "]") && IsIpv6(host);
}

}  // namespace convgrad
