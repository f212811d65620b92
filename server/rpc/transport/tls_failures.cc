#include "server/rpc/transport/tls_failures.h"

#include <openssl/crypto.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>

#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/stubs/logging.h"
#include "grpc/support/log.h"
#include "server/rpc/transport/refusal_log.h"
#include "spdlog/spdlog.h"

namespace convgrad {
namespace {

// The peer of HandshakesOf; null if the TLS objects that this thread makes
// don't belong to a listener.
thread_local const std::string* thread_peer = nullptr;

struct Handshake {
  std::string peer;
  bool is_told = false;
};

// Alerts of TLS (RFC 8446, section 6).
constexpr unsigned char kFatal = 2;
constexpr unsigned char kCertificateRequired = 116;

std::string OwnReason(const SSL* ssl, unsigned char alert) {
  if (alert == kCertificateRequired) return "it showed no certificate";
  const long verified = SSL_get_verify_result(ssl);
  if (verified != X509_V_OK) {
    return absl::StrCat("its certificate isn't accepted: ",
                        X509_verify_cert_error_string(verified));
  }
  return absl::StrCat("its TLS handshake failed: ",
                      SSL_alert_desc_string_long(alert));
}

std::string UnfinishedReason(const SSL* ssl) {
  if (SSL_in_init(ssl) != 0) {
    return "it broke the TLS handshake off or fell silent; it may not trust "
           "the server's certificate";
  }
  const unsigned char* protocol;
  unsigned size;
  SSL_get0_alpn_selected(ssl, &protocol, &size);
  return size == 0 ? "it doesn't ask for HTTP/2 (ALPN 'h2')" : "";
}

int HandshakeIndex();

void OnRecord(int is_ours, int /*version*/, int type, const void* bytes,
              size_t size, SSL* ssl, void* /*argument*/) {
  const auto* alert = static_cast<const unsigned char*>(bytes);
  if (type != SSL3_RT_ALERT || size != 2 || alert[0] != kFatal) return;
  auto* handshake =
      static_cast<Handshake*>(SSL_get_ex_data(ssl, HandshakeIndex()));
  if (handshake == nullptr || std::exchange(handshake->is_told, true)) return;
  LogRefusal(handshake->peer,
             is_ours != 0 ? OwnReason(ssl, alert[1])
                          : absl::StrCat("it ended the TLS handshake: ",
                                         SSL_alert_desc_string_long(alert[1])));
}

void OnNew(void* ssl, void* /*pointer*/, CRYPTO_EX_DATA* data, int index,
           long /*argl*/, void* /*argp*/) {
  if (thread_peer == nullptr) return;
  // The server can't use SSL_set_info_callback, because gRPC replaces it.
  SSL_set_msg_callback(static_cast<SSL*>(ssl), OnRecord);
  CRYPTO_set_ex_data(data, index, new Handshake{*thread_peer});
}

void OnFree(void* ssl, void* pointer, CRYPTO_EX_DATA* /*data*/, int /*index*/,
            long /*argl*/, void* /*argp*/) {
  const std::unique_ptr<Handshake> handshake(static_cast<Handshake*>(pointer));
  if (handshake == nullptr || handshake->is_told) return;
  const std::string reason = UnfinishedReason(static_cast<SSL*>(ssl));
  if (!reason.empty()) LogRefusal(handshake->peer, reason);
}

// Returns the index at which an SSL keeps its Handshake.
int HandshakeIndex() {
  static const int kIndex = CRYPTO_get_ex_new_index(
      CRYPTO_EX_INDEX_SSL, 0, nullptr, OnNew, nullptr, OnFree);
  return kIndex;
}

void OnGrpcLine(gpr_log_func_args* line) {
  if (absl::StartsWith(line->message, "Handshake failed with fatal error")) {
    return;
  }
  if (line->severity == GPR_LOG_SEVERITY_ERROR) {
    return LogGrpcError(line->message);
  }
  spdlog::log(line->severity == GPR_LOG_SEVERITY_INFO ? spdlog::level::info
                                                      : spdlog::level::debug,
              "gRPC: {}", line->message);
}

void OnProtobufLine(google::protobuf::LogLevel /*level*/, const char* /*file*/,
                    int /*line*/, const std::string& message) {
  LogProtobufError(message);
}

}  // namespace

HandshakesOf::HandshakesOf(std::string peer) : peer_(std::move(peer)) {
  HandshakeIndex();
  thread_peer = &peer_;
}

HandshakesOf::~HandshakesOf() { thread_peer = nullptr; }

void TakeLibraryLogs() {
  gpr_set_log_function(OnGrpcLine);
  google::protobuf::SetLogHandler(OnProtobufLine);
}

}  // namespace convgrad
