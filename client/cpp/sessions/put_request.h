// Tensors that are put, as messages. Internal to the client.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/borrowed_slices.h"
#include "client/cpp/connection.h"
#include "client/cpp/sessions/session.h"
#include "client/cpp/shared_region.h"
#include "convgrad/v1/session.pb.h"
#include "proto/region_places.h"

namespace convgrad {

// What is sent of each tensor: its bytes, where they lie in the region, or, if
// the server has them, their digest. Thread-compatible.
class PutRequest {
 public:
  // `region` may be null. Errors: kInvalidArgument for a tensor that has other
  // bytes than its descriptor says.
  static absl::StatusOr<PutRequest> Make(std::vector<TensorToPut> tensors,
                                         const SharedRegion* region);

  // Hashes every tensor, and has requests name the digests from now on. Returns
  // the question which of them the server knows.
  v1::HaveTensorsRequest AddDigests();
  // Leaves out the bytes that the server has, as its answer says. Errors:
  // kInternal for an answer to another question.
  absl::Status LeaveOut(const v1::HaveTensorsResponse& answer);
  // Has all bytes sent again, since `refusal` says that some have gone
  // meanwhile. Returns false if it says something else, or none were left out.
  bool SendAllAfter(const absl::Status& refusal);

  // Returns how many payload bytes are sent, and how many without LeaveOut.
  int64_t sent_bytes() const;
  int64_t all_bytes() const;

  // Returns a PutTensorsRequest, whose payloads are slices of `borrowed`.
  absl::StatusOr<grpc::ByteBuffer> Message(
      const BorrowedSlices& borrowed) const;
  // Returns the messages of a PutTensorsStream, likewise. The request and
  // `borrowed` must exist unchanged until the last message is made.
  Client::Connection::Messages Frames(const BorrowedSlices& borrowed) const;

 private:
  struct Tensor {
    TensorToPut put;
    std::optional<RegionRange> range;  // nullopt: not in the region
    std::string digest = {};           // empty: not asked for
    bool is_known = false;             // the server has its bytes

    bool is_sent() const { return !range && !is_known; }
  };
  class FrameSequence;

  explicit PutRequest(std::vector<Tensor> tensors)
      : tensors_(std::move(tensors)) {}

  // Returns what `tensor` is called and where its bytes are, unless they are
  // sent.
  static v1::NamedPut HeadOf(const Tensor& tensor);

  std::vector<Tensor> tensors_;
};

}  // namespace convgrad
