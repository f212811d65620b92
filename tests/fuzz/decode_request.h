// `DecodeRequest` decodes a request and checks the invariants of every result.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "backends/core/tensor_descriptor.h"
#include "google/protobuf/message.h"

namespace convgrad::fuzz {

// Decodes a request of any type, whose payloads have `payload_bytes`. Kept
// names stand for tensors like `kept`.
void DecodeRequest(const google::protobuf::Message& request,
                   absl::Span<const int64_t> payload_bytes,
                   const TensorDescriptor& kept);

}  // namespace convgrad::fuzz
