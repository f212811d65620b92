#include "backends/onednn/networks/schedule/network_library_step.h"

namespace convgrad::onednn {

void LibraryStep::Read(int arg, const LibraryTensor& tensor) {
  const dnnl::memory::desc wanted = Wanted(arg);
  const BufferId buffer =
      Reordered(tensor.buffer, tensor.desc, wanted, &schedule_);
  ReadAsItLies(arg, {buffer, wanted});
}

void LibraryStep::ReadScaled(int arg, const LibraryTensor& tensor,
                             const ReorderScales& scales) {
  const dnnl::memory::desc wanted = Wanted(arg);
  const BufferId buffer =
      schedule_.AddBuffer(static_cast<int64_t>(wanted.get_size()));
  AddLibraryReorder(tensor.buffer, tensor.desc, buffer, wanted, &schedule_,
                    &scales);
  ReadAsItLies(arg, {buffer, wanted});
}

void LibraryStep::ReadAsItLies(int arg, const LibraryTensor& tensor) {
  step_.reads.push_back(tensor.buffer);
  step_.arguments.push_back({arg, tensor.desc, tensor.buffer});
}

void LibraryStep::Write(int arg, const LibraryTensor& tensor) {
  const dnnl::memory::desc wanted = Wanted(arg);
  BufferId buffer = tensor.buffer;
  if (wanted != tensor.desc) {
    buffer = schedule_.AddBuffer(static_cast<int64_t>(wanted.get_size()));
    results_.push_back({{buffer, wanted}, tensor});
  }
  step_.writes.push_back(buffer);
  step_.arguments.push_back({arg, wanted, buffer});
}

void LibraryStep::Finish() {
  const dnnl::memory::desc scratchpad = Wanted(DNNL_ARG_SCRATCHPAD);
  if (scratchpad.get_size() > 0) {
    const BufferId buffer =
        schedule_.AddBuffer(static_cast<int64_t>(scratchpad.get_size()));
    step_.writes.push_back(buffer);
    step_.arguments.push_back({DNNL_ARG_SCRATCHPAD, scratchpad, buffer});
  }
  schedule_.Add(std::move(step_));
  for (const auto& [from, to] : results_) {
    AddLibraryReorder(from.buffer, from.desc, to.buffer, to.desc, &schedule_);
  }
}

}  // namespace convgrad::onednn
