// `Schedule` holds the steps of a plan in execution order and the buffers that
// they read and write. `MemoryMap` decides where in memory a buffer is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "oneapi/dnnl/dnnl.hpp"

namespace convgrad::onednn {

// The index of a buffer in Schedule::buffers().
using BufferId = int;
inline constexpr BufferId kNoBuffer = -1;

// Who provides a buffer's bytes.
enum class Area {
  kOperand,  // the caller, in RunBuffers::operands at Buffer::index
  kResult,   // the caller, in RunBuffers::results at Buffer::index
  kOwn,      // the plan: in scratch, on the tape or with prepared weights
};

struct Buffer {
  int64_t bytes = 0;  // may be 0 for kOperand and kResult, which need no memory
  Area area = Area::kOwn;
  size_t index = 0;
};

// The bytes of a buffer from an offset on.
struct Location {
  // NOLINTNEXTLINE(google-explicit-constructor): a buffer is all of its bytes.
  Location(BufferId buffer = kNoBuffer, int64_t byte_offset = 0)
      : buffer(buffer), byte_offset(byte_offset) {}

  Location At(int64_t more_bytes) const {
    return {buffer, byte_offset + more_bytes};
  }
  friend bool operator==(const Location&, const Location&) = default;

  BufferId buffer;
  int64_t byte_offset;
};

// `RunContext` gives a step's function the addresses of its buffers in one run,
// and the team's threads. Owned by one thread.
class RunContext {
 public:
  // `addresses` has one for each buffer.
  RunContext(absl::Span<std::byte* const> addresses, int threads)
      : addresses_(addresses), threads_(threads) {}

  // Return the address; null for kNoBuffer.
  template <typename T>
  const T* Read(const Location& location) const {
    return reinterpret_cast<const T*>(At(location));
  }
  template <typename T>
  T* Write(const Location& location) const {
    return reinterpret_cast<T*>(At(location));
  }
  std::byte* At(const Location& location) const {
    return location.buffer == kNoBuffer
               ? nullptr
               : addresses_[location.buffer] + location.byte_offset;
  }

  // Calls `part` for each number in [0, count) on the team and waits: a
  // RunParts of backends/kernels.
  void ForParts(int64_t count, absl::FunctionRef<void(int64_t)> part) const;
  // Does the same, and passes the number of the thread's share, below
  // threads(): no two calls with the same number run at once.
  void ForThreadParts(int64_t count,
                      absl::FunctionRef<void(int64_t, int64_t)> part) const;
  // Return these functions as arguments of kernels. Valid as long as the
  // context.
  auto parts() const {
    return [this](int64_t count, absl::FunctionRef<void(int64_t)> part) {
      ForParts(count, part);
    };
  }
  auto thread_parts() const {
    return
        [this](int64_t count, absl::FunctionRef<void(int64_t, int64_t)> part) {
          ForThreadParts(count, part);
        };
  }
  int threads() const { return threads_; }

 private:
  const absl::Span<std::byte* const> addresses_;
  const int threads_;
};

// The kinds of steps that only change layouts and dtypes.
inline constexpr absl::string_view kLayoutKind = "layout";
inline constexpr absl::string_view kWeightLayoutKind = "weight layout";

// One step: a primitive of the library with its arguments, or a function of
// ours.
struct Step {
  struct Argument {
    int arg;  // DNNL_ARG_*
    dnnl::memory::desc desc;
    Location location;
  };

  // The key in RunTimes::steps, e.g. "conv backward data"; "" has none. Stays
  // valid as long as the process.
  absl::string_view kind = {};
  std::vector<BufferId> reads = {};
  std::vector<BufferId> writes = {};
  double macs = 0;
  // Bytes of the tables that the function holds.
  int64_t table_bytes = 0;
  dnnl::primitive_desc_base primitive_desc = {};
  std::vector<Argument> arguments = {};
  std::function<void(const RunContext&)> function = {};
  // An I32 buffer: if it holds 0, the step is skipped. kNoBuffer: the step
  // always runs.
  BufferId only_if = kNoBuffer;
  // Runs before the step. An error ends the run.
  std::function<absl::Status(const RunContext&)> check = {};
  // Whether an earlier step has written the same values, which no step reads
  // until this one has written them again.
  bool is_again = false;
};

// Thread-compatible value.
class Schedule {
 public:
  BufferId AddBuffer(int64_t bytes) {
    return AddBuffer({bytes, Area::kOwn, 0});
  }
  BufferId AddBuffer(const Buffer& buffer);
  // Adds a buffer for `count` numbers.
  template <typename T>
  BufferId AddArray(int64_t count) {
    return AddBuffer(count * int64_t{sizeof(T)});
  }
  // Appends a step. Adds the scratchpad of a primitive as a buffer. Drops
  // kNoBuffer, which stands for a tensor that isn't there.
  void Add(Step step);
  // Appends a step that calls `function`, which reads and writes these buffers.
  void Add(absl::string_view kind, const std::vector<Location>& reads,
           const std::vector<Location>& writes,
           std::function<void(const RunContext&)> function, double macs = 0);

  // Inserts steps, each before the step at the index that is its key. Steps of
  // one key keep their order.
  void Insert(std::multimap<size_t, Step> steps);

  const std::vector<Buffer>& buffers() const { return buffers_; }
  const std::vector<Step>& steps() const { return steps_; }

  // Records the error of a step that can't be added. The schedule is incomplete
  // then. status() returns the first error.
  void Fail(const absl::Status& error) { status_.Update(error); }
  const absl::Status& status() const { return status_; }

  // Makes the steps from `begin` on depend on the I32 `flag` (Step::only_if).
  void RunOnlyIf(BufferId flag, size_t begin);

  // Drops all steps but those of [begin, end) that the buffers in `needed`
  // depend on. `needed` says for each buffer whether it is read afterwards.
  void KeepOnly(size_t begin, size_t end, std::vector<bool> needed);

 private:
  std::vector<Buffer> buffers_;
  std::vector<Step> steps_;
  absl::Status status_;
};

}  // namespace convgrad::onednn
