#include "proto/sha256.h"

#include <openssl/evp.h>

namespace convgrad {

Sha256::Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
  EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr);
}

void Sha256::Update(absl::Span<const std::byte> bytes) {
  EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size());
}

void Sha256::Update(absl::string_view text) {
  EVP_DigestUpdate(context_.get(), text.data(), text.size());
}

std::string Sha256::Finish() {
  std::string digest(kBytes, '\0');
  EVP_DigestFinal_ex(context_.get(),
                     reinterpret_cast<unsigned char*>(digest.data()), nullptr);
  return digest;
}

std::string Sha256Of(absl::string_view text) {
  Sha256 hash;
  hash.Update(text);
  return hash.Finish();
}

}  // namespace convgrad
