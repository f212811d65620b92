#include "server/telemetry/certificate_expiry.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <algorithm>
#include <ctime>
#include <memory>

namespace convgrad {
namespace {

using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;

std::optional<double> ExpirationOf(const Certificate& certificate) {
  std::tm fields = {};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate.get()), &fields) != 1) {
    return std::nullopt;
  }
  return static_cast<double>(timegm(&fields));
}

}  // namespace

std::optional<double> FirstExpiration(const std::string& path) {
  const Bio file(BIO_new_file(path.c_str(), "r"), &BIO_free);
  std::optional<double> first;
  while (file != nullptr) {
    const Certificate certificate(
        PEM_read_bio_X509(file.get(), nullptr, nullptr, nullptr), &X509_free);
    if (certificate == nullptr) break;
    const std::optional<double> end = ExpirationOf(certificate);
    if (end) first = std::min(*end, first.value_or(*end));
  }
  // OpenSSL reports the end of the file as an error. gRPC uses the same error
  // queue.
  ERR_clear_error();
  return first;
}

}  // namespace convgrad
