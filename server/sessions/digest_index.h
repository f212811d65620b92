// Kept bytes by what they are: what a client has put once, in any of its
// sessions, needn't be sent again.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "backends/core/mutex.h"
#include "backends/core/tensor_descriptor.h"
#include "server/sessions/kept_state.h"

namespace convgrad {

// Knows the bytes that some session keeps under a digest, as long as one does.
// A digest of another client's bytes is unknown. Thread-safe.
class DigestIndex {
 public:
  // Returns what stands for the digest from now on, as long as anybody keeps
  // it: `tensor`, or the same bytes that were there before.
  KeptTensor Add(const std::string& client, const std::string& digest,
                 const KeptTensor& tensor);
  std::optional<KeptTensor> Find(const std::string& client,
                                 const std::string& digest) const;

  // Puts that sent no bytes, and the bytes that they didn't send.
  int64_t hits() const;
  int64_t saved_bytes() const;
  void CountHit(int64_t bytes);

  // Forgets what nobody keeps any more. To be called now and then.
  void Sweep();

 private:
  struct Entry {
    TensorDescriptor descriptor;
    std::weak_ptr<const KeptBytes> bytes;
  };

  mutable Mutex mutex_;
  // By client and digest.
  std::map<std::pair<std::string, std::string>, Entry> entries_
      ABSL_GUARDED_BY(mutex_);
  int64_t hits_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t saved_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace convgrad
