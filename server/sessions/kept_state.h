// The tensors, programs and tapes of a session at one number.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "backends/core/program_operation.h"
#include "backends/core/tensor_descriptor.h"
#include "server/memory/buffer_pool.h"
#include "server/sessions/kept_memory.h"

namespace convgrad {

// Bytes and what they mean. Value type; the bytes are shared.
struct KeptTensor {
  TensorDescriptor descriptor;
  std::shared_ptr<const KeptBytes> bytes;
  // The number of the change that wrote it.
  int64_t version = 0;

  // Returns what it counts in quotas.
  int64_t quota_bytes() const { return BufferPool::CapacityFor(bytes->size()); }
};

// A program, and what pays for its memory. Immutable.
struct KeptProgram {
  std::shared_ptr<const Program> program;
  std::shared_ptr<const KeptBytes> bytes;

  // Returns what it counts in quotas.
  int64_t quota_bytes() const { return BufferPool::CapacityFor(bytes->size()); }
};

// What one run of a program keeps for its backward. Immutable.
struct KeptTape {
  std::shared_ptr<const KeptBytes> bytes;
  // The run that wrote it: a kForwardTape.
  ProgramRequest run;
  // By the program's parameter: the version that the run used.
  std::vector<int64_t> parameter_versions;

  // Returns what it counts in quotas.
  int64_t quota_bytes() const { return BufferPool::CapacityFor(bytes->size()); }
};

// Immutable once it is a session's: a read that has one sees one number
// throughout, and what it reads lives as long as the read.
struct KeptState {
  // Of the last change that it has.
  int64_t number = 0;
  std::map<std::string, KeptTensor, std::less<>> tensors;
  std::map<std::string, std::shared_ptr<const KeptProgram>, std::less<>>
      programs;
  std::map<std::string, std::shared_ptr<const KeptTape>, std::less<>> tapes;
  // What all of them count in quotas.
  int64_t quota_bytes = 0;
};

// What a change writes, by name; nullopt and null drop what has the name.
struct KeptWrites {
  std::map<std::string, std::optional<KeptTensor>> tensors;
  std::map<std::string, std::shared_ptr<const KeptProgram>> programs;
  std::map<std::string, std::shared_ptr<const KeptTape>> tapes;
};

// Returns `state` with `writes`, one number later.
KeptState After(const KeptState& state, const KeptWrites& writes);

// Checks the name of a tensor or a session: 1 to 255 bytes of printable ASCII
// without / and \, so that it can be a label, a file's name and a line of a
// log. `field` names it in errors.
// Errors: kInvalidArgument, reason OUT_OF_RANGE or MALFORMED.
absl::Status CheckName(absl::string_view name, absl::string_view field);

}  // namespace convgrad
