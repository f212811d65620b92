// `SessionImage` is the content of a session at one number, as a snapshot
// stores it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "backends/core/tensor_descriptor.h"

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

// Everything of a session that is small. Value type.
struct ImageHead {
  std::string id;  // 16 bytes, secret.
  std::string open_id;
  std::string name;
  std::string client;
  std::string owner;
  std::vector<std::string> readers;
  absl::Duration lease;
  int64_t quota_bytes = 0;
  int64_t number = 0;
  // Epochs from `first_epoch` to `epoch` are those of the client that resumed
  // the session last, with the call `resumed_by` (empty if it had no id). 0 in
  // manifests of earlier servers.
  int64_t epoch = 0;
  int64_t first_epoch = 0;
  std::string resumed_by;
  std::string trainer_state;  // At most 64 KiB.
  // What the server was that committed the change `number`: at most 64 facts
  // by name, each with its name at most 1 KiB of printable ASCII. Empty if
  // unknown.
  std::map<std::string, std::string> computed_by = {};
};

// Value type. Names of tensors, names of programs, and numbers of replies are
// unique.
struct SessionImage {
  ImageHead head;
  std::vector<ImageTensor> tensors;
  std::vector<ImageProgram> programs;
  std::vector<ImageReply> replies;
};

}  // namespace convgrad
