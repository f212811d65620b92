// `KeptState` holds the tensors, programs and tapes of a session at one number.
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
#include "backends/core/program/program_operation.h"
#include "backends/core/tensor_descriptor.h"
#include "server/memory/buffer_pool.h"
#include "server/sessions/kept_memory.h"

namespace convgrad {

// Limits of one session, because each change copies the maps of names.
inline constexpr int64_t kMaxKeptTensors = 16384;
inline constexpr int64_t kMaxKeptPrograms = 1024;
inline constexpr int64_t kMaxKeptTapes = 1024;

// Bytes of an entry beside its content and its name: map nodes, descriptor,
// control blocks. Measured: 12,288 tensors of four axes and 64
// bytes raise the resident size by 600 bytes each, their bytes included.
inline constexpr int64_t kEntryBytes = 640;

// A tensor of a session: bytes and their descriptor. Value type; the bytes are
// shared.
struct KeptTensor {
  TensorDescriptor descriptor;
  std::shared_ptr<const KeptBytes> bytes;
  // The number of the change that wrote it.
  int64_t version = 0;

  // Returns what it counts in quotas, beside its entry.
  int64_t quota_bytes() const { return BufferPool::CapacityFor(bytes->size()); }
};

// A program of a session, and the booking of its memory. Immutable.
struct KeptProgram {
  std::shared_ptr<const Program> program;
  KeptBooking booking;

  // Returns what it counts in quotas, beside its entry.
  int64_t quota_bytes() const { return booking.bytes(); }
};

// A tape: the bytes that one run of a program keeps for its backward.
// Immutable.
struct KeptTape {
  std::shared_ptr<const KeptBytes> bytes;
  // The run that wrote it: a kForwardTape.
  ProgramRequest run;
  // The run's program. A tape may outlive its program's name, so it counts the
  // program as well.
  std::shared_ptr<const KeptProgram> program;
  // By the program's parameter: the version that the run used.
  std::vector<int64_t> parameter_versions;

  // Returns what it counts in quotas, beside its entry.
  int64_t quota_bytes() const {
    return BufferPool::CapacityFor(bytes->size()) + program->quota_bytes() +
           kEntryBytes * static_cast<int64_t>(run.inputs.size());
  }
};

// Sizes of a session's contents. Value type.
struct KeptTotals {
  int64_t tensors = 0;
  int64_t programs = 0;
  int64_t tapes = 0;
  // Bytes of the entries themselves; each state has its own.
  int64_t entry_bytes = 0;
  // Bytes that count in quotas, entries included.
  int64_t quota_bytes = 0;
};

// Immutable once a session has it. A read that holds a state sees one number,
// and its tensors stay valid as long as the read.
struct KeptState {
  // The number of the last change that it contains.
  int64_t number = 0;
  std::map<std::string, KeptTensor, std::less<>> tensors;
  std::map<std::string, std::shared_ptr<const KeptProgram>, std::less<>>
      programs;
  std::map<std::string, std::shared_ptr<const KeptTape>, std::less<>> tapes;
  KeptTotals totals;
  // Pays for the entries as long as a reader has them.
  std::shared_ptr<const Reservation> paid;
};

// The writes of a change, by name. nullopt and null drop the name.
struct KeptWrites {
  std::map<std::string, std::optional<KeptTensor>> tensors;
  std::map<std::string, std::shared_ptr<const KeptProgram>> programs;
  std::map<std::string, std::shared_ptr<const KeptTape>> tapes;
};

// Returns the totals of `state` with `writes`, without making it.
KeptTotals TotalsAfter(const KeptState& state, const KeptWrites& writes);

// Returns `state` with `writes`, one number later and without `paid`.
KeptState After(const KeptState& state, const KeptWrites& writes);

// Returns `state` without its tapes, at the same number.
KeptState WithoutTapes(const KeptState& state);

// Checks the name of a tensor or a session: 1 to 255 bytes of printable ASCII
// without / and \, so that it can be a label, a file's name and a line of a
// log. `field` names it in errors.
// Errors: kInvalidArgument, reason OUT_OF_RANGE or MALFORMED.
absl::Status CheckName(absl::string_view name, absl::string_view field);

}  // namespace convgrad
