#include "proto/tensor_digest.h"

#include <openssl/evp.h>

#include <memory>

#include "absl/strings/str_cat.h"

namespace convgrad {

std::string DigestOf(const TensorDescriptor& descriptor,
                     absl::string_view bytes) {
  std::string head = ToString(descriptor);
  if (descriptor.layout == Layout::kFractalZ3D && descriptor.groups > 1) {
    absl::StrAppend(&head, " g", descriptor.groups);
  }
  head += '\n';
  std::string digest(kDigestBytes, '\0');
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(
      EVP_MD_CTX_new(), EVP_MD_CTX_free);
  EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr);
  EVP_DigestUpdate(context.get(), head.data(), head.size());
  EVP_DigestUpdate(context.get(), bytes.data(), bytes.size());
  EVP_DigestFinal_ex(context.get(),
                     reinterpret_cast<unsigned char*>(digest.data()), nullptr);
  return digest;
}

}  // namespace convgrad
