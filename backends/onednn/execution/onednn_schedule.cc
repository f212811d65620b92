#include "backends/onednn/execution/onednn_schedule.h"

#include <algorithm>

#include "backends/onednn/library/onednn_threads.h"

namespace convgrad::onednn {

void RunContext::ForParts(int64_t count,
                          absl::FunctionRef<void(int64_t)> part) const {
  ForThreadParts(count, [&](int64_t i, int64_t) { part(i); });
}

void RunContext::ForThreadParts(
    int64_t count, absl::FunctionRef<void(int64_t, int64_t)> part) const {
  ParallelFor(threads_, count, 1, [&](int share, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) part(i, share);
  });
}

BufferId Schedule::AddBuffer(const Buffer& buffer) {
  buffers_.push_back(buffer);
  return static_cast<BufferId>(buffers_.size()) - 1;
}

void Schedule::Add(Step step) {
  std::erase(step.reads, kNoBuffer);
  std::erase(step.writes, kNoBuffer);
  if (!step.function) {
    const dnnl::memory::desc scratchpad = step.primitive_desc.scratchpad_desc();
    const auto bytes = static_cast<int64_t>(scratchpad.get_size());
    if (bytes > 0) {
      const BufferId buffer = AddBuffer(bytes);
      step.writes.push_back(buffer);
      step.arguments.push_back({DNNL_ARG_SCRATCHPAD, scratchpad, buffer});
    }
  }
  steps_.push_back(std::move(step));
}

void Schedule::Add(absl::string_view kind, const std::vector<Location>& reads,
                   const std::vector<Location>& writes,
                   std::function<void(const RunContext&)> function,
                   double macs) {
  Step step = {.kind = kind, .macs = macs, .function = std::move(function)};
  for (const Location& read : reads) step.reads.push_back(read.buffer);
  for (const Location& write : writes) step.writes.push_back(write.buffer);
  Add(std::move(step));
}

void Schedule::RunOnlyIf(BufferId flag, size_t begin) {
  for (size_t i = begin; i < steps_.size(); ++i) {
    steps_[i].only_if = flag;
    steps_[i].reads.push_back(flag);
  }
}

void Schedule::Insert(std::multimap<size_t, Step> steps) {
  std::vector<Step> all;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const auto [begin, end] = steps.equal_range(i);
    for (auto step = begin; step != end; ++step) {
      all.push_back(std::move(step->second));
    }
    all.push_back(std::move(steps_[i]));
  }
  steps_ = std::move(all);
}

void Schedule::KeepOnly(size_t begin, size_t end, std::vector<bool> needed) {
  std::vector<Step> kept;
  for (size_t i = end; i-- > begin;) {
    Step& step = steps_[i];
    const bool is_needed =
        std::any_of(step.writes.begin(), step.writes.end(),
                    [&](BufferId buffer) { return needed[buffer]; });
    if (!is_needed) continue;
    for (const BufferId buffer : step.reads) needed[buffer] = true;
    kept.push_back(std::move(step));
  }
  std::reverse(kept.begin(), kept.end());
  steps_ = std::move(kept);
}

}  // namespace convgrad::onednn
