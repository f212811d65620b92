#include "proto/pem_files.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using PrivateKey = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

Bio Reading(const std::string& text) {
  return {BIO_new_mem_buf(text.data(), static_cast<int>(text.size())),
          &BIO_free};
}

Certificate NextCertificate(const Bio& bio) {
  return {PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr), &X509_free};
}

// Prevents OpenSSL from prompting on the terminal.
int NoPassword(char* /*buffer*/, int /*size*/, int /*is_written*/,
               void* /*user*/) {
  return 0;
}

// Returns an object whose end clears OpenSSL's error queue, which gRPC reads as
// well.
auto ErrorsCleared() {
  return absl::Cleanup([] { ERR_clear_error(); });
}

absl::Status Wrong(const PemFile& file, absl::string_view expected) {
  return OutOfRange(file.option, absl::StrCat("'", file.path, "'"), expected);
}

// Returns the file's text. Errors: kInvalidArgument with the system's reason,
// such as "Permission denied".
absl::StatusOr<std::string> TextOf(const PemFile& file,
                                   absl::string_view expected) {
  std::ostringstream text;
  errno = 0;
  text << std::ifstream(file.path).rdbuf();
  if (!text.str().empty() || errno == 0) return text.str();
  return OutOfRange(
      file.option,
      absl::StrCat("'", file.path, "' (", std::strerror(errno), ")"), expected);
}

}  // namespace

absl::StatusOr<std::string> ReadCertificates(const PemFile& file) {
  const auto errors_cleared = ErrorsCleared();
  constexpr absl::string_view kExpected = "certificates in PEM";
  ASSIGN_OR_RETURN(std::string text, TextOf(file, kExpected));
  const Bio bio = Reading(text);
  int count = 0;
  while (NextCertificate(bio) != nullptr) ++count;
  const bool is_at_end =
      ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  if (count == 0 || !is_at_end) return Wrong(file, kExpected);
  return text;
}

absl::StatusOr<std::string> ReadPrivateKey(const PemFile& file,
                                           absl::string_view certificate_option,
                                           const std::string& certificates) {
  const auto errors_cleared = ErrorsCleared();
  constexpr absl::string_view kExpected =
      "a private key in PEM that isn't encrypted";
  ASSIGN_OR_RETURN(std::string text, TextOf(file, kExpected));
  const PrivateKey key(PEM_read_bio_PrivateKey(Reading(text).get(), nullptr,
                                               &NoPassword, nullptr),
                       &EVP_PKEY_free);
  if (key == nullptr) return Wrong(file, kExpected);
  const Certificate certificate = NextCertificate(Reading(certificates));
  if (X509_check_private_key(certificate.get(), key.get()) == 1) return text;
  return OutOfRange(file.option, "another certificate's",
                    absl::StrCat("that of ", certificate_option));
}

}  // namespace convgrad
