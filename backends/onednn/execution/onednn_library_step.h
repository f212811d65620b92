// `LibraryStep` builds a step of the library with the reorders that it needs.
#pragma once

#include <utility>
#include <vector>

#include "backends/kernels/copies/reorder.h"
#include "backends/onednn/execution/onednn_schedule.h"

namespace convgrad::onednn {

// A tensor as the library sees it: its bytes and their layout.
struct LibraryTensor {
  Location location;
  dnnl::memory::desc desc;
};

// Elements in a layout that our Reorder takes.
struct Elements {
  PhysicalLayout layout;
  DataType dtype;
  Location location;
};

// Factors that a reorder multiplies the elements by.
struct ReorderScales {
  BufferId scales;  // f32
  int64_t count;
  // Bit i: each index of dim i has a factor of its own.
  int mask;
};

// Append a step that copies `from` to `to`. The first two use our kernels. The
// third uses the library, multiplies by `scales` if not null, and throws
// dnnl::error.
void AddReorder(Reorder reorder, const Location& from, const Location& to,
                Schedule* schedule, absl::string_view kind = kLayoutKind);
void AddReorder(const Elements& from, const Elements& to, Schedule* schedule,
                absl::string_view kind = kLayoutKind);
void AddReorder(const LibraryTensor& from, const LibraryTensor& to,
                Schedule* schedule, const ReorderScales* scales = nullptr);

// Builds a step of the library. It reorders operands to the layouts that the
// primitive wants, and results back. Owned by one thread. Throws dnnl::error.
class LibraryStep {
 public:
  // `step` has a primitive, and no arguments yet.
  LibraryStep(Step step, Schedule* schedule)
      : step_(std::move(step)), schedule_(*schedule) {}

  // Reads the tensor's elements, times `scales` if not null.
  void Read(int arg, const LibraryTensor& tensor,
            const ReorderScales* scales = nullptr);
  // Reads an operand of a post-op. Requires: the layout that the primitive was
  // made for.
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
  // Results in the primitive's layout, and the tensors that they are copied to.
  std::vector<std::pair<LibraryTensor, LibraryTensor>> results_;
};

}  // namespace convgrad::onednn
