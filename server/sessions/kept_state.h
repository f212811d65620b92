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
inline constexpr int64_t kMaxTrainerStateBytes = int64_t{64} << 10;
inline constexpr int64_t kMaxNamedSnapshots = 16;

// The most bytes of the name of a tensor or a session, and of a snapshot, which
// has a file of that name.
inline constexpr size_t kMaxNameBytes = 255;
inline constexpr size_t kMaxSnapshotNameBytes = 128;

// Bytes of an entry beside its content and its name: map nodes, descriptor,
// control blocks. Measured: 12,288 tensors of four axes and 64 bytes raise the
// resident size by 600 bytes each, including their bytes.
inline constexpr int64_t kEntryBytes = 640;

// The memory of a program per byte on the wire: strings, maps and variants of
// some ten bytes each. An upper estimate.
inline constexpr int64_t kMemoryPerProgramByte = 16;

// A tensor of a session: a descriptor and shared bytes. Value type.
struct KeptTensor {
  TensorDescriptor descriptor;
  std::shared_ptr<const KeptBytes> bytes;
  // The number of the change that wrote the tensor.
  int64_t version = 0;

  // Returns the bytes that quotas count for the tensor, without its entry.
  int64_t quota_bytes() const { return BufferPool::CapacityFor(bytes->size()); }
};

// A program of a session, and the booking of its memory. Immutable.
struct KeptProgram {
  std::shared_ptr<const Program> program;
  KeptBooking booking;

  // Returns the bytes that quotas count for the program, without its entry.
  int64_t quota_bytes() const { return booking.bytes(); }
};

// A tape: the bytes that one run of a program keeps for its backward.
// Immutable.
struct KeptTape {
  std::shared_ptr<const KeptBytes> bytes;
  // The request of the run that wrote the tape. Its part is kForwardTape.
  ProgramRequest run;
  // The run's program. The tape counts it in quotas, because the tape may exist
  // longer than the program's name.
  std::shared_ptr<const KeptProgram> program;
  // By the program's parameter: the version that the run used.
  std::vector<int64_t> parameter_versions;

  // Returns the bytes that quotas count for the tape, without its entry.
  int64_t quota_bytes() const {
    return BufferPool::CapacityFor(bytes->size()) + program->quota_bytes() +
           kEntryBytes * std::ssize(run.inputs);
  }
};

// `KeptTotals` counts a session's contents. Value type.
struct KeptTotals {
  int64_t tensors = 0;
  int64_t programs = 0;
  int64_t tapes = 0;
  // Bytes of the entries. Each state pays for its own.
  int64_t entry_bytes = 0;
  // Bytes that quotas count, including entries.
  int64_t quota_bytes = 0;
};

// What decides the bits of a server's results, by name: model of the CPU,
// versions, threads. Empty if unknown.
using MachineFacts = std::map<std::string, std::string>;

// `KeptState` is immutable when a session has it. A read that holds a state
// sees one number, and the state's tensors stay valid as long as the read.
struct KeptState {
  // The number of the last committed change of this state.
  int64_t number = 0;
  std::map<std::string, KeptTensor, std::less<>> tensors;
  std::map<std::string, std::shared_ptr<const KeptProgram>, std::less<>>
      programs;
  std::map<std::string, std::shared_ptr<const KeptTape>, std::less<>> tapes;
  // The trainer's own data; null if no change has carried any.
  std::shared_ptr<const std::string> trainer_state;
  // The number of the change that carried it.
  int64_t trainer_state_number = 0;
  // The server that committed the change; null: this one.
  std::shared_ptr<const MachineFacts> computed_by;
  KeptTotals totals;
  // Reserves the bytes of the entries as long as a reader holds the state.
  std::shared_ptr<const Reservation> paid;
};

// The writes of a change, by name. A nullopt or null value drops the name.
struct KeptWrites {
  std::map<std::string, std::optional<KeptTensor>> tensors;
  std::map<std::string, std::shared_ptr<const KeptProgram>> programs;
  std::map<std::string, std::shared_ptr<const KeptTape>> tapes;
  // Null: the state keeps the trainer's data that it has. Empty: it has none.
  std::shared_ptr<const std::string> trainer_state;
  // See KeptState.
  std::shared_ptr<const MachineFacts> computed_by = nullptr;
};

// Returns the writes that make tensors, programs and trainer's data of `state`
// those of `wanted`. They drop all tapes. Programs that `wanted` lacks stay,
// because clients know which ones they have loaded.
KeptWrites WritesToRestore(const KeptState& state, const KeptState& wanted);

// Returns the totals that After(state, writes) would have.
KeptTotals TotalsAfter(const KeptState& state, const KeptWrites& writes);

// Returns `state` with `writes` applied, its number plus 1 and `paid` null.
KeptState After(const KeptState& state, const KeptWrites& writes);

// Returns `state` without its tapes, at the same number.
KeptState WithoutTapes(const KeptState& state);

// Returns whether a client may resume a session from `state`: it has no tapes,
// which only the client that made them can use, and if the trainer keeps data
// of its own, the change that led to `state` carried them; only drops of tapes
// may have followed. Otherwise the state may be in the middle of a step, and
// the data say that the step is to come.
bool IsResumable(const KeptState& state);

// Checks the name of a tensor, a session or a snapshot: 1 to `most` bytes of
// printable ASCII without / and \. Such a name can be a label, a file name and
// a part of a log line. `field` names it in errors.
// Errors: kInvalidArgument, reason OUT_OF_RANGE or MALFORMED.
absl::Status CheckName(absl::string_view name, absl::string_view field,
                       size_t most = kMaxNameBytes);

}  // namespace convgrad
