// Steps of the library's: reorders, and primitives with what brings their
// operands to the layouts that they want, and their results back.
#pragma once

#include <utility>
#include <vector>

#include "backends/kernels/copies/reorder.h"
#include "backends/onednn/execution/onednn_schedule.h"

namespace convgrad::onednn {

// A tensor of the library's: where it is, and how it lies there.
struct LibraryTensor {
  Location location;
  dnnl::memory::desc desc;
};

// What each element is multiplied with by the way.
struct ReorderScales {
  BufferId scales;  // f32
  int64_t count;
  // Bit i: there is one for each index of dim i.
  int mask;
};

// Append a step that brings `from` to `to`, by our kernels or by the library;
// null scales are ones. The second one throws dnnl::error.
void AddReorder(Reorder reorder, const Location& from, const Location& to,
                Schedule* schedule);
void AddReorder(const LibraryTensor& from, const LibraryTensor& to,
                Schedule* schedule, const ReorderScales* scales = nullptr);

// Owned by one thread. Throws dnnl::error.
class LibraryStep {
 public:
  // `step` has a primitive, and no arguments yet.
  LibraryStep(Step step, Schedule* schedule)
      : step_(std::move(step)), schedule_(*schedule) {}

  void Read(int arg, const LibraryTensor& tensor);
  // Likewise, times `scales`, f32 with one for each index of the dims in
  // `mask` (bit i: dim i).
  void ReadScaled(int arg, const LibraryTensor& tensor,
                  const ReorderScales& scales);
  // Reads an operand of a post-op, which lies as the primitive was made for.
  void ReadAsItLies(int arg, const LibraryTensor& tensor);
  void Write(int arg, const LibraryTensor& tensor);
  // Appends the step.
  void Finish();

 private:
  dnnl::memory::desc Wanted(int arg) const {
    return step_.primitive_desc.query_md(dnnl::query::exec_arg_md, arg);
  }

  Step step_;
  Schedule& schedule_;
  // What was written in the primitive's layout, and where it belongs.
  std::vector<std::pair<LibraryTensor, LibraryTensor>> results_;
};

}  // namespace convgrad::onednn
