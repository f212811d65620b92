// A `TensorSource` says where a request has the bytes of a tensor: in a
// payload, in a shared region, or in a session.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "backends/core/tensor_descriptor.h"
#include "convgrad/v1/tensor.pb.h"
#include "proto/region_places.h"

namespace convgrad {

// The name of a tensor that a session keeps, as in a message. Value type.
struct KeptName {
  std::string session_id;  // "": the call's own
  std::string tensor_id;
  int64_t version = 0;  // 0: the newest

  friend bool operator==(const KeptName&, const KeptName&) = default;
};

KeptName DecodeKeptName(const v1::Tensor::Kept& message);

// Where the bytes of a request's tensors arrive, unless they are in a region or
// kept.
enum class Carrier {
  kMessage,  // the request
  kStream,   // frames that follow the request
};

// The place of a tensor's bytes. At most one member is set. None is set if the
// bytes come in a stream's frames, or if there is no tensor. Value type.
struct TensorSource {
  int payload_index = -1;  // -1: not in the message
  // A range with an id of the right length and the size of the tensor, which
  // doesn't wrap. Whether the region exists isn't checked.
  std::optional<RegionRange> region;
  std::optional<KeptName> kept;
};

// Checks that the tensors of a message name each of its payloads, with the
// right size. Thread-compatible.
class NamedPayloads {
 public:
  // `bytes` are the sizes of the message's payloads and must outlive this
  // object.
  explicit NamedPayloads(absl::Span<const int64_t> bytes)
      : bytes_(bytes), is_named_(bytes.size(), false) {}

  // Records that the bytes of the tensor at `path` are payload `index`. Several
  // tensors may name one payload.
  // Errors: kInvalidArgument, reasons OUT_OF_RANGE and BYTE_COUNT_MISMATCH.
  absl::Status Name(int index, const TensorDescriptor& tensor,
                    const std::string& path);
  // Checks that a tensor names every payload.
  // Errors: kInvalidArgument, reason MALFORMED.
  absl::Status CheckAll() const;

 private:
  const absl::Span<const int64_t> bytes_;
  std::vector<bool> is_named_;
};

}  // namespace convgrad
