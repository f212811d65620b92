// A plan's steps, ready to run: primitives and functions of ours over operands,
// results and one scratch area.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/backend.h"
#include "backends/core/conv_operation.h"
#include "backends/kernels/scattered_reorder.h"
#include "oneapi/dnnl/dnnl.hpp"

namespace convgrad::onednn {

// Where some bytes lie at run time.
struct Location {
  enum class Area {
    kOperand,
    kResult,
    kScratch,
    kPreparedWeight,
    kGathered,  // a copy of an operand, which the caller may have made
  };
  Area area = Area::kScratch;
  int index = 0;  // Operand, or position in the results; 0 for the others
  int64_t byte_offset = 0;

  Location At(int64_t more_bytes) const {
    return {area, index, byte_offset + more_bytes};
  }
  friend bool operator==(const Location&, const Location&) = default;
};

// Where in scratch lies what the caller has no place for, or didn't bring.
struct ScratchPlaces {
  int64_t prepared_weight = 0;
  std::array<int64_t, kOperandCount> gathers = {};
};

// Turns locations into pointers for one run.
class Memory {
 public:
  Memory(const RunBuffers& buffers, const ScratchPlaces& places)
      : buffers_(buffers),
        gathers_(places.gathers),
        prepared_weight_(buffers.prepared_weight.empty()
                             ? buffers.scratch.data() + places.prepared_weight
                             : buffers.prepared_weight.data()) {}

  const void* Read(const Location& location) const;
  void* Write(const Location& location) const;

 private:
  const RunBuffers& buffers_;
  const std::array<int64_t, kOperandCount> gathers_;
  std::byte* const prepared_weight_;
};

// Built once, then immutable; Run is thread-safe with buffers of its own.
class Program {
 public:
  struct Argument {
    int arg;  // DNNL_ARG_*
    dnnl::memory::desc desc;
    Location location;
  };
  using HostStep = std::function<void(const Memory&)>;

  Program();

  // Reserves scratch, aligned to 64 bytes.
  Location Allocate(int64_t bytes);
  // Likewise, for what a run may find done: see RunBuffers::prepared_weight.
  Location AllocatePreparedWeight(int64_t bytes);
  // Has the steps that are added, until false is said, prepare the weight.
  void SetPreparesWeight(bool prepares) { prepares_weight_ = prepares; }
  // Likewise, for the copy of an operand that the next step makes; each operand
  // has one at most. `gather` is what the step does.
  Location AllocateGathered(Operand operand, ScatteredReorder gather);
  bool HasGather(Operand operand) const {
    return gathers_[static_cast<size_t>(operand)].has_value();
  }

  // Appends a step. `scratchpad` is what the primitive asks for.
  void AddPrimitive(bool is_compute, const dnnl::primitive& primitive,
                    const dnnl::memory::desc& scratchpad,
                    std::vector<Argument> arguments);
  // Append a step of ours that reads `reads`, other steps' results aside; the
  // first is counted as reorder time.
  void AddHostStep(const std::vector<Location>& reads, HostStep step) {
    AddStep(false, reads, std::move(step));
  }
  void AddComputeStep(const std::vector<Location>& reads, HostStep step) {
    AddStep(true, reads, std::move(step));
  }

  int64_t scratch_bytes() const {
    return scratch_bytes_ + prepared_weight_bytes_ + scratchpad_bytes_;
  }
  int64_t prepared_weight_bytes() const { return prepared_weight_bytes_; }
  // See Plan::gather.
  const OperandGather* gather(size_t position) const;
  int64_t resident_bytes() const;

  // Errors: kInternal.
  absl::StatusOr<RunTimes> Run(const RunBuffers& buffers) const;

 private:
  void AddStep(bool is_compute, absl::Span<const Location> reads,
               HostStep step);

  struct Step {
    bool is_compute = false;
    bool prepares_weight = false;
    std::optional<Operand> gathered;
    dnnl::primitive primitive;
    dnnl::memory::desc scratchpad;
    std::vector<Argument> arguments;
    HostStep host;  // instead of a primitive
  };

  // What one run at a time needs of the library: a stream and memory objects.
  // Making them costs as much as a small layer, so they are kept, and pointed
  // at the next run's memory.
  struct Session;
  struct Sessions;

  std::unique_ptr<Session> TakeSession() const;
  void ReturnSession(std::unique_ptr<Session> session) const;
  std::unique_ptr<Session> MakeSession() const;
  // Returns a step with what was said of the next one, and counts its reads.
  Step& Append(bool is_compute, absl::Span<const Location> reads);
  bool IsDone(const Step& step, const RunBuffers& buffers) const;
  RunTimes RunIn(Session* session, const RunBuffers& buffers) const;

  std::vector<Step> steps_;
  std::array<std::optional<ScatteredReorder>, kOperandCount> gathers_;
  // Offsets of scratch.
  std::array<int64_t, kOperandCount> gather_places_ = {};
  // Steps that read the operand.
  std::array<int, kOperandCount> readers_ = {};
  std::optional<Operand> gathered_;  // the next step
  int64_t scratch_bytes_ = 0;
  // Behind it the prepared weight.
  int64_t prepared_weight_bytes_ = 0;
  bool prepares_weight_ = false;
  // One area behind the rest, for whichever primitive runs.
  int64_t scratchpad_bytes_ = 0;
  std::shared_ptr<Sessions> sessions_;  // never null
};

}  // namespace convgrad::onednn
