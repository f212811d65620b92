// Where a request says that the bytes of its tensors are.
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

// A tensor that a session keeps, as a message names it. Value type.
struct KeptName {
  std::string session_id;  // "": the call's own
  std::string tensor_id;
  int64_t version = 0;  // 0: the newest

  friend bool operator==(const KeptName&, const KeptName&) = default;
};

KeptName DecodeKeptName(const v1::Tensor::Kept& message);

// Where a tensor's bytes are. At most one member says so: none does if they
// come in a stream's frames, or if there is no tensor. Value type.
struct TensorSource {
  int payload_index = -1;  // -1: not in the message
  // Its id has the right length, and its range is the tensor's size and doesn't
  // wrap. Whether there is such a region isn't known here.
  std::optional<RegionRange> region;
  std::optional<KeptName> kept;
};

// Which payloads the tensors of a message name. Thread-compatible.
class NamedPayloads {
 public:
  // `bytes` are the sizes of the message's payloads, and outlive this.
  explicit NamedPayloads(absl::Span<const int64_t> bytes)
      : bytes_(bytes), is_named_(bytes.size(), false) {}

  // Notes that the bytes of the tensor at `path` are payload `index`. Several
  // tensors may name one payload.
  // Errors: kInvalidArgument, reasons OUT_OF_RANGE and BYTE_COUNT_MISMATCH.
  absl::Status Name(int index, const TensorDescriptor& tensor,
                    const std::string& path);
  // Errors: kInvalidArgument, reason MALFORMED, if no tensor names a payload.
  absl::Status CheckAll() const;

 private:
  const absl::Span<const int64_t> bytes_;
  std::vector<bool> is_named_;
};

}  // namespace convgrad
