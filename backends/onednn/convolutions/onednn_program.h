// A plan's steps, ready to run: primitives and functions of ours over operands,
// results and one scratch area.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/backend.h"
#include "backends/core/convolution/conv_operation.h"
#include "backends/core/mutex.h"
#include "backends/kernels/copies/scattered_reorder.h"
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

// A tensor of the caller, or a copy of one.
struct Tensor {
  TensorDescriptor descriptor;
  Location location;
};

class Program;

// What a step finds in one run: its tensors, and how many threads it may use.
class StepContext {
 public:
  StepContext(const Program& program, const RunBuffers& buffers)
      : program_(program), buffers_(buffers) {}

  const void* Read(const Location& location) const;
  void* Write(const Location& location) const;
  int threads() const;

 private:
  const Program& program_;
  const RunBuffers& buffers_;
};

// Built once, then immutable.
class Program final : public Plan {
 public:
  struct Argument {
    int arg;  // DNNL_ARG_*
    dnnl::memory::desc desc;
    Location location;
  };
  // A primitive with its arguments, or a function of ours.
  struct Step {
    // Whose time it is: the arithmetic's, or that of copies.
    bool is_compute = false;
    // The only thing that needs the step. Where that is a prepared weight or a
    // gathered copy, a run whose caller brings it leaves the step out.
    Location purpose = {};
    dnnl::primitive primitive = {};
    dnnl::memory::desc scratchpad = {};  // that the primitive asks for
    std::vector<Argument> arguments = {};
    // What the function reads, other steps' results aside.
    std::vector<Location> reads = {};
    std::function<void(const StepContext&)> function = {};
  };

  // To be run by a team of `threads`.
  explicit Program(int threads);
  ~Program() override;

  // Reserves scratch, aligned to 64 bytes.
  Location Allocate(int64_t bytes);
  Tensor Allocate(const TensorDescriptor& tensor) {
    return {tensor, Allocate(*ByteSize(tensor))};
  }
  // Likewise, for what a run may find done: see RunBuffers::prepared_weight.
  Location AllocatePreparedWeight(int64_t bytes);
  // Likewise, for the copy of an operand that `gather` makes; each operand has
  // one at most.
  Location AllocateGathered(Operand operand, ScatteredReorder gather);
  bool HasGather(Operand operand) const {
    return gathers_[static_cast<size_t>(operand)].has_value();
  }

  void Add(Step step);
  // Likewise, a function of ours that copies or finishes elements.
  void Add(std::vector<Location> reads,
           std::function<void(const StepContext&)> function,
           const Location& purpose = {});

  // Appends a word, which says how a pass is computed.
  void AppendImplementation(absl::string_view word);

  int threads() const { return threads_; }

  absl::StatusOr<RunTimes> Run(const RunBuffers& buffers) const override;
  int64_t scratch_bytes() const override {
    return scratch_bytes_ + prepared_weight_bytes_ + scratchpad_bytes_;
  }
  int64_t prepared_weight_bytes() const override {
    return prepared_weight_bytes_;
  }
  const OperandGather* gather(size_t position) const override;
  int64_t resident_bytes() const override;
  absl::string_view implementation() const override { return implementation_; }

 private:
  friend class StepContext;

  // What one run at a time needs of the library: a stream and memory objects.
  // Making them costs as much as a small layer, so they are kept, and pointed
  // at the next run's memory.
  struct Session;

  std::unique_ptr<Session> TakeSession() const;
  void ReturnSession(std::unique_ptr<Session> session) const;
  std::unique_ptr<Session> MakeSession() const;
  bool IsDone(const Step& step, const RunBuffers& buffers) const;
  RunTimes RunIn(Session* session, const RunBuffers& buffers) const;

  const int threads_;
  std::vector<Step> steps_;
  std::array<std::optional<ScatteredReorder>, kOperandCount> gathers_;
  // Offsets of scratch.
  std::array<int64_t, kOperandCount> gather_places_ = {};
  // Steps that read the operand.
  std::array<int, kOperandCount> readers_ = {};
  int64_t scratch_bytes_ = 0;
  // Behind it the prepared weight.
  int64_t prepared_weight_bytes_ = 0;
  // One area behind the rest, for whichever primitive runs.
  int64_t scratchpad_bytes_ = 0;
  std::string implementation_;
  mutable Mutex mutex_;
  // Those that no run has; as many as there were runs at once.
  mutable std::vector<std::unique_ptr<Session>> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace convgrad::onednn
