// A step of the library's, with what brings its operands to the layouts that
// its primitive wants, and its results back.
#pragma once

#include <utility>
#include <vector>

#include "backends/onednn/networks/schedule/network_layouts.h"
#include "backends/onednn/networks/schedule/network_schedule.h"

namespace convgrad::onednn {

// A tensor of the library's: where it is, and how it lies there.
struct LibraryTensor {
  BufferId buffer = kNoBuffer;
  dnnl::memory::desc desc;
};

// Owned by one thread.
class LibraryStep {
 public:
  // `step` has a primitive, and no arguments yet.
  LibraryStep(NetworkStep step, Schedule* schedule)
      : step_(std::move(step)), schedule_(*schedule) {}

  void Read(int arg, const LibraryTensor& tensor);
  // Likewise, times `scales`, f32 with one for each index of the dims in
  // `mask` (bit i: dim i).
  void ReadScaled(int arg, const LibraryTensor& tensor,
                  const ReorderScales& scales);
  // Reads an operand of a post-op, which lies as the primitive was made for.
  void ReadAsItLies(int arg, const LibraryTensor& tensor);
  void Write(int arg, const LibraryTensor& tensor);
  // Appends the step, with its scratchpad.
  void Finish();

 private:
  dnnl::memory::desc Wanted(int arg) const {
    return step_.primitive_desc.query_md(dnnl::query::exec_arg_md, arg);
  }

  NetworkStep step_;
  Schedule& schedule_;
  // What was written in the primitive's layout, and where it belongs.
  std::vector<std::pair<LibraryTensor, LibraryTensor>> results_;
};

}  // namespace convgrad::onednn
