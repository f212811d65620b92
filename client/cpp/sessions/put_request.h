// `PutRequest` encodes tensors to put as messages. Internal to the client.
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

// Sends for each tensor its bytes, its place in the region, or, if the server
// has the bytes, their digest. Thread-compatible.
class PutRequest {
 public:
  // `region` may be null. Errors: kInvalidArgument for a tensor whose byte
  // count differs from its descriptor's.
  static absl::StatusOr<PutRequest> Make(std::vector<TensorToPut> tensors,
                                         const SharedRegion* region,
                                         std::string trainer_state = "");

  // Hashes every tensor; later requests name the digests. Returns the request
  // that asks the server which of them it has.
  v1::HaveTensorsRequest AddDigests();
  // Marks the bytes that the server has, so that they aren't sent. Errors:
  // kInternal for an answer to another request.
  absl::Status LeaveOut(const v1::HaveTensorsResponse& answer);
  // Sends all bytes again if `refusal` says that the server no longer has some.
  // Returns false if it says something else, or if none were left out.
  bool SendAllAfter(const absl::Status& refusal);

  // Return the payload bytes that are sent, with and without LeaveOut.
  int64_t sent_bytes() const;
  int64_t all_bytes() const;
  // Returns the number of payloads that are sent.
  int64_t sent_payloads() const;

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

  PutRequest(std::vector<Tensor> tensors, std::string trainer_state)
      : tensors_(std::move(tensors)),
        trainer_state_(std::move(trainer_state)) {}

  // Returns the name of `tensor` and the place of its bytes unless they are
  // sent.
  static v1::NamedPut HeadOf(const Tensor& tensor);
  // Returns the first message of a stream.
  grpc::ByteBuffer StreamHeader() const;

  std::vector<Tensor> tensors_;
  std::string trainer_state_;
};

}  // namespace convgrad
