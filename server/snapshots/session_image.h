// `SessionImage` is the content of a session at one number, as a snapshot
// stores it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "backends/core/tensor_descriptor.h"
#include "server/snapshots/manifest.pb.h"

namespace convgrad {

// `ImageBytes` are shared bytes. They are valid and constant as long as `owner`
// exists. Two `ImageBytes` with the same owner, address and size have the same
// content, so the store doesn't read them twice. Value type; a copy copies no
// bytes.
struct ImageBytes {
  std::shared_ptr<const void> owner;
  absl::Span<const std::byte> bytes;
};

// A tensor of a session, including gradients, optimizer state and randomness
// (names with `#`). Value type.
struct ImageTensor {
  // 1 to 255 printable ASCII characters without / and \.
  std::string name;
  TensorDescriptor descriptor;
  // The number of the change that wrote the tensor.
  int64_t version = 0;
  // Packed, ByteSize(descriptor) bytes.
  ImageBytes data;
};

// A program of a session. Value type.
struct ImageProgram {
  std::string name;  // As ImageTensor::name.
  ImageBytes message;
};

// A committed change whose reply the client hasn't acknowledged. Value type.
struct ImageReply {
  int64_t number = 0;
  std::string call_id;
  // nullopt if the session no longer keeps the reply.
  std::optional<ImageBytes> message;
};

// Value type. Names of tensors, names of programs, and numbers of replies are
// unique.
struct SessionImage {
  // Everything that is small.
  snapshots::Session head;
  std::vector<ImageTensor> tensors;
  std::vector<ImageProgram> programs;
  std::vector<ImageReply> replies;
};

}  // namespace convgrad
