// The work of a plan as a list of steps on buffers, before anything is said of
// where the buffers lie.
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

// A number of a buffer of a Schedule.
using BufferId = int;
inline constexpr BufferId kNoBuffer = -1;

// Where a buffer's bytes are.
enum class Area {
  kOperand,   // the caller's; `index` is its position in RunBuffers::operands
  kResult,    // likewise, in RunBuffers::results
  kOwn,       // the plan's: in scratch, on the tape or with prepared weights
  kGathered,  // a copy of the operand at `index`: the plan's, in scratch,
              // unless the caller has made it (RunBuffers::is_gathered)
};

struct Buffer {
  int64_t bytes = 0;  // 0 where only the caller knows
  Area area = Area::kOwn;
  size_t index = 0;
};

// Bytes of a buffer, from an offset on.
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

// What a step's function finds in one run. Owned by one thread.
class RunContext {
 public:
  // `addresses` has one for each buffer.
  RunContext(absl::Span<std::byte* const> addresses, int threads)
      : addresses_(addresses), threads_(threads) {}

  // Null for kNoBuffer.
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

  // Calls `part` for each of [0, count) on the team: a RunParts of
  // backends/kernels.
  void ForParts(int64_t count, absl::FunctionRef<void(int64_t)> part) const;
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

  // For reports, e.g. "conv backward data"; "" isn't reported. Lives as long as
  // the process.
  absl::string_view kind = {};
  std::vector<BufferId> reads = {};
  std::vector<BufferId> writes = {};
  double macs = 0;
  // Of what the function holds beside code, where that follows from extents.
  int64_t table_bytes = 0;
  dnnl::primitive_desc_base primitive_desc = {};
  std::vector<Argument> arguments = {};
  std::function<void(const RunContext&)> function = {};
  // An I32: where it is 0, the step is left out. kNoBuffer: it always runs.
  BufferId only_if = kNoBuffer;
  // Comes first, and ends the run where what the caller sent can't be.
  std::function<absl::Status(const RunContext&)> check = {};
  // Whether a step before it wrote the same, which nobody reads any longer.
  bool is_again = false;
};

// Thread-compatible value.
class Schedule {
 public:
  BufferId AddBuffer(int64_t bytes) {
    return AddBuffer({bytes, Area::kOwn, 0});
  }
  BufferId AddBuffer(const Buffer& buffer);
  // Appends a step. A primitive gets the scratchpad that it asks for.
  void Add(Step step);

  // Inserts steps, each before the one whose index it has, in their order.
  void Insert(std::multimap<size_t, Step> steps);

  const std::vector<Buffer>& buffers() const { return buffers_; }
  const std::vector<Step>& steps() const { return steps_; }

  // Has the steps from `begin` on left out where the I32 `flag` is 0.
  void RunOnlyIf(BufferId flag, size_t begin);

  // Keeps the steps of [begin, end) that what is `needed` depends on: by
  // buffer, whether its contents are needed afterwards.
  void KeepOnly(size_t begin, size_t end, std::vector<bool> needed);

 private:
  std::vector<Buffer> buffers_;
  std::vector<Step> steps_;
};

}  // namespace convgrad::onednn
