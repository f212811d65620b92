#include "client/cpp/calls/rpc_status.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "convgrad/v1/error.pb.h"
#include "proto/call_metadata.h"

namespace convgrad {
namespace {

constexpr char kPushbackPayload[] = "convgrad/retry-pushback-ms";

// Returns kInternal for a name that this client doesn't know.
Reason ParseReason(const std::string& name) {
  for (int i = 0; i < static_cast<int>(Reason::kInternal); ++i) {
    if (ReasonName(static_cast<Reason>(i)) == name) {
      return static_cast<Reason>(i);
    }
  }
  return Reason::kInternal;
}

std::optional<ErrorDetail> DetailOf(const grpc::ClientContext& context) {
  const auto trailer = TrailerOf(context, kErrorTrailer);
  v1::ErrorDetail message;
  if (!trailer || !message.ParseFromArray(trailer->data(),
                                          static_cast<int>(trailer->size()))) {
    return std::nullopt;
  }
  return ErrorDetail{ParseReason(message.reason()), message.field(),
                     message.found(), message.expected()};
}

constexpr char kSilence[] = "before receiving SETTINGS frame";

struct Advice {
  const char* said;  // in a message of gRPC 1.51 or OpenSSL 3
  const char* meant;
};

// Common reasons for which a client can't connect.
constexpr Advice kAdvice[] = {
    {"http1.x server",
     "the server may speak TLS, which needs a ca, or isn't gRPC"},
    {"wrong version number", "the server speaks plaintext, which needs no ca"},
    {"certificate verify failed",
     "the server's certificate has expired or isn't from an authority in ca"},
    {"is not in peer certificate",
     "the server's certificate is for another name: server_name says which is "
     "expected"},
    {"Socket closed",
     "a server that asks for certificates ends connections like this where "
     "cert is missing, has expired or isn't from its authority; its log says "
     "which"},
    {kSilence, "this address accepts connections but doesn't answer"},
};

absl::StatusCode CodeOf(const grpc::Status& status) {
  const bool has_closed = status.error_code() == grpc::StatusCode::UNKNOWN &&
                          status.error_message() == "Stream removed";
  return has_closed ? absl::StatusCode::kUnavailable
                    : static_cast<absl::StatusCode>(status.error_code());
}

// Appends an explanation to `message` if it reports a failed connection.
std::string Explained(const std::string& message) {
  if (!absl::StrContains(message, "last error: ")) return message;
  for (const Advice& advice : kAdvice) {
    if (!absl::StrContains(message, advice.said)) continue;
    return absl::StrCat(message, " (", advice.meant, ")");
  }
  return message;
}

}  // namespace

absl::Status FromRpc(const grpc::Status& status,
                     const grpc::ClientContext& context) {
  if (status.ok()) return absl::OkStatus();
  absl::Status converted(CodeOf(status), Explained(status.error_message()));
  if (const auto pushback = TrailerOf(context, kPushbackTrailer)) {
    converted.SetPayload(kPushbackPayload, absl::Cord(*pushback));
  }
  const std::optional<ErrorDetail> detail = DetailOf(context);
  if (!detail) return converted;
  MakeError(converted.code(), *detail)
      .ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
        converted.SetPayload(url, payload);
      });
  return converted;
}

std::optional<absl::string_view> TrailerOf(const grpc::ClientContext& context,
                                           const char* key) {
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto found = trailers.find(key);
  if (found == trailers.end()) return std::nullopt;
  return absl::string_view(found->second.data(), found->second.size());
}

bool IsSilence(const absl::Status& status) {
  return absl::IsUnavailable(status) && !DetailOf(status) &&
         absl::StrContains(status.message(), kSilence);
}

std::optional<absl::Duration> PushbackOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kPushbackPayload);
  // gRFC A6: a number beyond 32 bits means that there is no retry.
  int32_t milliseconds = 0;
  if (!payload || !absl::SimpleAtoi(std::string(*payload), &milliseconds) ||
      milliseconds < 0) {
    return std::nullopt;
  }
  return absl::Milliseconds(milliseconds);
}

}  // namespace convgrad
