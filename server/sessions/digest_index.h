// `DigestIndex` finds kept bytes by their digest, so that a client doesn't send
// bytes again that one of its sessions keeps.
#pragma once

#include <atomic>
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

// An entry exists as long as a session keeps the bytes. A digest of another
// client's bytes is unknown. Thread-safe.
class DigestIndex {
 public:
  // Registers `tensor` under its digest. Returns `tensor`, or the registered
  // tensor with the same bytes.
  KeptTensor Add(const std::string& client, const std::string& digest,
                 const KeptTensor& tensor);
  // Returns the tensor with these bytes; nullopt if the client keeps none.
  std::optional<KeptTensor> Find(const std::string& client,
                                 const std::string& digest) const;

  // The number of puts that sent only a digest, and the bytes that they saved.
  int64_t hits() const { return hits_; }
  int64_t saved_bytes() const { return saved_bytes_; }
  void CountHit(int64_t bytes) {
    ++hits_;
    saved_bytes_ += bytes;
  }

  // Removes entries of bytes that no session keeps. Call it from time to time.
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
  std::atomic<int64_t> hits_{0};
  std::atomic<int64_t> saved_bytes_{0};
};

}  // namespace convgrad
