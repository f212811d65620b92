// `TensorGet` finds the tensors of a get, for one message or for a stream.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "convgrad/v1/session.pb.h"
#include "proto/codec/session_codec.h"
#include "server/memory/shared_bytes.h"
#include "server/rpc/calls/call_session.h"

namespace convgrad {

// Bytes of the message for each tensor that it describes. A name has up to 255
// bytes and exists twice in the message and twice on the wire.
inline constexpr int64_t kListedBytes = 2048;

// Returns the message that describes the kept tensor `tensor`.
v1::KeptTensorInfo InfoOf(const std::string& name, const KeptTensor& tensor);

// `TensorGet` is thread-compatible; owned by its call. The tensors that it
// found stay valid as long as this.
class TensorGet {
 public:
  // Finds the tensors of `request` in the state that the call reads.
  // Errors: kInvalidArgument; kNotFound.
  static absl::StatusOr<TensorGet> Find(const v1::GetTensorsRequest& request,
                                        const CallSession& session);

  size_t count() const { return found_.size(); }
  // Returns the bytes of the message that describes the tensors.
  int64_t ListedBytes() const {
    return static_cast<int64_t>(count()) * kListedBytes;
  }
  // The bytes of all tensors in the form that the client wants.
  int64_t bytes() const { return bytes_; }
  const TensorDescriptor& descriptor(size_t i) const {
    return found_[i].wanted.descriptor;
  }
  // Returns the message that describes the tensors, without their sources.
  v1::GetTensorsResponse Describe() const;

  // Returns the bytes of the budget that BytesOf takes for all tensors. It
  // copies the tensors that the client wants in another layout or dtype.
  // Saturates.
  int64_t CopyCapacity() const;
  // Returns the bytes of tensor `i` that BytesOf copies.
  int64_t CopiedBytes(size_t i) const;
  // Returns the bytes of tensor `i` in the form that the client wants. `*paid`
  // pays for a copy. Adds the copied bytes to `*copied_bytes`.
  // Errors: kResourceExhausted.
  absl::StatusOr<SharedBytes> BytesOf(size_t i,
                                      const std::shared_ptr<CallMemory>& memory,
                                      Reservation* paid,
                                      int64_t* copied_bytes) const;

 private:
  struct Found {
    std::string name;
    KeptTensor kept;
    WantedTensor wanted;

    bool is_copied() const { return !(wanted.descriptor == wanted.source); }
  };

  std::vector<Found> found_;
  int64_t number_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace convgrad
