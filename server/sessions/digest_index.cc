#include "server/sessions/digest_index.h"

#include <openssl/evp.h>

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

KeptTensor DigestIndex::Add(const std::string& client,
                            const std::string& digest,
                            const KeptTensor& tensor) {
  MutexLock lock(&mutex_);
  Entry& entry = entries_[{client, digest}];
  if (std::shared_ptr<const KeptBytes> same = entry.bytes.lock()) {
    return {entry.descriptor, std::move(same), 0};
  }
  entry = {tensor.descriptor, tensor.bytes};
  return tensor;
}

std::optional<KeptTensor> DigestIndex::Find(const std::string& client,
                                            const std::string& digest) const {
  MutexLock lock(&mutex_);
  const auto found = entries_.find({client, digest});
  if (found == entries_.end()) return std::nullopt;
  std::shared_ptr<const KeptBytes> bytes = found->second.bytes.lock();
  if (bytes == nullptr) return std::nullopt;
  return KeptTensor{found->second.descriptor, std::move(bytes), 0};
}

int64_t DigestIndex::hits() const {
  MutexLock lock(&mutex_);
  return hits_;
}

int64_t DigestIndex::saved_bytes() const {
  MutexLock lock(&mutex_);
  return saved_bytes_;
}

void DigestIndex::CountHit(int64_t bytes) {
  MutexLock lock(&mutex_);
  ++hits_;
  saved_bytes_ += bytes;
}

void DigestIndex::Sweep() {
  MutexLock lock(&mutex_);
  std::erase_if(entries_,
                [](const auto& entry) { return entry.second.bytes.expired(); });
}

}  // namespace convgrad
