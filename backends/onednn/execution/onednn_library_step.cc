#include "backends/onednn/execution/onednn_library_step.h"

#include <memory>

#include "backends/onednn/library/onednn_threads.h"
#include "backends/onednn/library/onednn_types.h"

namespace convgrad::onednn {

void AddReorder(Reorder reorder, const Location& from, const Location& to,
                Schedule* schedule, absl::string_view kind) {
  const auto shared = std::make_shared<const Reorder>(std::move(reorder));
  schedule->Add(kind, {from.buffer}, {to.buffer},
                [=](const RunContext& context) {
                  const std::byte* source = context.At(from);
                  std::byte* destination = context.At(to);
                  ParallelFor(context.threads(), shared->part_count(), 1,
                              [&](int, int64_t begin, int64_t end) {
                                shared->Run(source, destination, begin, end);
                              });
                });
}

void AddReorder(const Elements& from, const Elements& to, Schedule* schedule,
                absl::string_view kind) {
  AddReorder(Reorder::Make(from.layout, from.dtype, to.layout, to.dtype),
             from.location, to.location, schedule, kind);
}

void AddReorder(const LibraryTensor& from, const LibraryTensor& to,
                Schedule* schedule, const ReorderScales* scales) {
  dnnl::primitive_attr attributes = StrictAttributes();
  if (scales != nullptr) {
    attributes.set_scales_mask(DNNL_ARG_SRC, scales->mask);
  }
  Step step = {.kind = kWeightLayoutKind,
               .reads = {from.location.buffer},
               .writes = {to.location.buffer},
               .primitive_desc = dnnl::reorder::primitive_desc(
                   CpuEngine(), from.desc, CpuEngine(), to.desc, attributes),
               .arguments = {{DNNL_ARG_FROM, from.desc, from.location},
                             {DNNL_ARG_TO, to.desc, to.location}}};
  if (scales != nullptr) {
    step.reads.push_back(scales->scales);
    step.arguments.push_back(
        {DNNL_ARG_ATTR_SCALES | DNNL_ARG_SRC,
         {{scales->count}, dnnl::memory::data_type::f32, {1}},
         scales->scales});
  }
  schedule->Add(std::move(step));
}

void LibraryStep::Read(int arg, const LibraryTensor& tensor,
                       const ReorderScales* scales) {
  LibraryTensor read = {tensor.location, Wanted(arg)};
  if (scales != nullptr || read.desc != tensor.desc) {
    read.location =
        schedule_.AddBuffer(static_cast<int64_t>(read.desc.get_size()));
    AddReorder(tensor, read, &schedule_, scales);
  }
  ReadAsItLies(arg, read);
}

void LibraryStep::ReadAsItLies(int arg, const LibraryTensor& tensor) {
  step_.reads.push_back(tensor.location.buffer);
  step_.arguments.push_back({arg, tensor.desc, tensor.location});
}

void LibraryStep::Write(int arg, const LibraryTensor& tensor) {
  LibraryTensor written = {tensor.location, Wanted(arg)};
  if (written.desc != tensor.desc) {
    written.location =
        schedule_.AddBuffer(static_cast<int64_t>(written.desc.get_size()));
    results_.push_back({written, tensor});
  }
  step_.writes.push_back(written.location.buffer);
  step_.arguments.push_back({arg, written.desc, written.location});
}

void LibraryStep::Finish() {
  schedule_.Add(std::move(step_));
  for (const auto& [from, to] : results_) AddReorder(from, to, &schedule_);
}

}  // namespace convgrad::onednn
