#include "server/sessions/digest_index.h"

namespace convgrad {

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

void DigestIndex::Sweep() {
  MutexLock lock(&mutex_);
  std::erase_if(entries_,
                [](const auto& entry) { return entry.second.bytes.expired(); });
}

}  // namespace convgrad
