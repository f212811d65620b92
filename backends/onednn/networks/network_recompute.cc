#include "backends/onednn/networks/network_recompute.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

namespace convgrad::onednn {
namespace {

// A forward's use of a buffer, by index into its steps.
struct ForwardUse {
  size_t first = static_cast<size_t>(-1);
  size_t last = 0;
  size_t last_write = 0;
  int writes = 0;
  bool is_read_by_backward = false;
};

std::vector<ForwardUse> UsesIn(const Schedule& schedule,
                               const ForwardAndBackward& parts) {
  std::vector<ForwardUse> uses(schedule.buffers().size());
  for (size_t i = 0; i < parts.forward_end; ++i) {
    const Step& step = schedule.steps()[i];
    for (const auto* used : {&step.reads, &step.writes}) {
      for (const BufferId buffer : *used) {
        uses[buffer].first = std::min(uses[buffer].first, i);
        uses[buffer].last = i;
      }
    }
    for (const BufferId buffer : step.writes) {
      uses[buffer].last_write = i;
      ++uses[buffer].writes;
    }
  }
  for (size_t i = parts.backward_begin; i < schedule.steps().size(); ++i) {
    for (const BufferId buffer : schedule.steps()[i].reads) {
      uses[buffer].is_read_by_backward = true;
    }
  }
  return uses;
}

// The forward's steps [begin, end).
struct Segment {
  size_t begin, end;

  bool HasAllOf(const ForwardUse& use) const {
    return begin <= use.first && use.last < end;
  }
};

class SegmentFinder {
 public:
  SegmentFinder(const Schedule& schedule, const ForwardAndBackward& parts)
      : schedule_(schedule), parts_(parts), uses_(UsesIn(schedule, parts)) {
    for (size_t i = 0; i < uses_.size(); ++i) {
      if (IsKept(i)) largest_ = std::max(largest_, BytesOf(i));
    }
  }

  // Returns up to `count` segments that keep about equally many bytes each.
  std::vector<Segment> Split(int count) const {
    std::vector<int64_t> bytes(parts_.forward_end);
    int64_t total = 0;
    for (size_t i = 0; i < uses_.size(); ++i) {
      if (!IsKept(i)) continue;
      bytes[uses_[i].first] += BytesOf(i);
      total += BytesOf(i);
    }
    std::vector<Segment> segments;
    size_t begin = 0;
    int64_t sum = 0;
    for (size_t i = 0; i < parts_.forward_end; ++i) {
      sum += bytes[i];
      const auto made = static_cast<int64_t>(segments.size()) + 1;
      if (made == count || sum < total / count * made) continue;
      segments.push_back({begin, i + 1});
      begin = i + 1;
    }
    segments.push_back({begin, parts_.forward_end});
    return segments;
  }

  // Returns all segments except the last one, whose values the backward reads
  // at once.
  std::vector<RepeatedSegment> Find(
      const std::vector<Segment>& segments) const {
    std::vector<RepeatedSegment> found;
    for (size_t i = 0; i + 1 < segments.size(); ++i) {
      found.push_back(FindOne(segments[i]));
    }
    return found;
  }

  // Returns the bytes that are kept, plus the bytes written again for the
  // segment that needs most.
  int64_t MemoryFor(const std::vector<RepeatedSegment>& segments) const {
    std::vector<bool> is_kept(uses_.size());
    for (size_t i = 0; i < uses_.size(); ++i) is_kept[i] = IsKept(i);
    int64_t most = 0;
    for (const RepeatedSegment& segment : segments) {
      for (const size_t step : segment.steps) {
        for (const BufferId buffer : schedule_.steps()[step].reads) {
          if (IsOwn(buffer)) is_kept[buffer] = true;
        }
      }
      int64_t bytes = 0;
      for (const BufferId buffer : segment.writes) {
        bytes += BytesOf(buffer);
        is_kept[buffer] = false;
      }
      most = std::max(most, bytes);
    }
    for (size_t i = 0; i < uses_.size(); ++i) {
      if (is_kept[i]) most += BytesOf(i);
    }
    return most;
  }

 private:
  int64_t BytesOf(size_t buffer) const {
    return schedule_.buffers()[buffer].bytes;
  }
  bool IsOwn(size_t buffer) const {
    return schedule_.buffers()[buffer].area == Area::kOwn &&
           !parts_.is_result[buffer];
  }
  // Returns whether the backward reads the buffer, if nothing is recomputed.
  bool IsKept(size_t buffer) const {
    return IsOwn(buffer) && uses_[buffer].writes > 0 &&
           uses_[buffer].is_read_by_backward;
  }
  // Returns whether keeping the buffer costs much memory. The statistics of
  // channels are much smaller than activations, and recomputing them takes a
  // pass over an activation, so they don't count.
  bool IsLarge(size_t buffer) const {
    constexpr int64_t kLargestOverLarge = 64;
    return BytesOf(buffer) >= largest_ / kLargestOverLarge;
  }

  // Returns whether a copy of the step reads the same values, kept or written
  // again, and overwrites nothing that another step needs.
  bool CanRepeat(size_t index, const Segment& segment) const {
    const Step& step = schedule_.steps()[index];
    const bool can_read =
        std::all_of(step.reads.begin(), step.reads.end(), [&](BufferId buffer) {
          const ForwardUse& use = uses_[buffer];
          const bool is_done = use.writes > 0 && use.last_write < index;
          return parts_.is_lasting[buffer] || (IsOwn(buffer) && is_done);
        });
    const bool can_write = std::all_of(
        step.writes.begin(), step.writes.end(), [&](BufferId buffer) {
          return IsOwn(buffer) && segment.HasAllOf(uses_[buffer]) &&
                 (step.writes.size() == 1 || uses_[buffer].writes == 1);
        });
    return can_read && can_write;
  }

  // Returns, for each buffer, whether the segment's steps can write it again.
  std::vector<bool> FindWritable(const Segment& segment) const {
    std::vector<bool> is_writable(uses_.size());
    for (size_t i = 0; i < uses_.size(); ++i) {
      is_writable[i] = uses_[i].writes > 0 && segment.HasAllOf(uses_[i]);
    }
    for (size_t i = segment.begin; i < segment.end; ++i) {
      if (CanRepeat(i, segment)) continue;
      for (const BufferId buffer : schedule_.steps()[i].writes) {
        is_writable[buffer] = false;
      }
    }
    return is_writable;
  }

  RepeatedSegment FindOne(const Segment& segment) const {
    const std::vector<bool> is_writable = FindWritable(segment);
    std::vector<bool> again(uses_.size());
    for (size_t i = 0; i < uses_.size(); ++i) {
      again[i] = is_writable[i] && IsKept(i) && IsLarge(i);
    }
    RepeatedSegment found;
    for (size_t i = segment.end; i-- > segment.begin;) {
      const Step& step = schedule_.steps()[i];
      const bool is_needed =
          std::any_of(step.writes.begin(), step.writes.end(),
                      [&](BufferId buffer) { return again[buffer]; });
      if (!is_needed) continue;
      found.steps.push_back(i);
      for (const BufferId buffer : step.writes) again[buffer] = true;
      for (const BufferId buffer : step.reads) {
        if (is_writable[buffer] && !IsKept(buffer)) again[buffer] = true;
      }
    }
    std::reverse(found.steps.begin(), found.steps.end());
    for (size_t i = 0; i < uses_.size(); ++i) {
      if (again[i]) found.writes.push_back(static_cast<BufferId>(i));
    }
    return found;
  }

  const Schedule& schedule_;
  const ForwardAndBackward& parts_;
  const std::vector<ForwardUse> uses_;
  int64_t largest_ = 0;
};

}  // namespace

std::vector<RepeatedSegment> FindRepeatedSegments(
    const Schedule& schedule, const ForwardAndBackward& parts) {
  // With more segments, the bytes kept between them exceed the savings. For
  // equal layers the best number of segments is the root of their number.
  constexpr int kMaxSegments = 24;
  const SegmentFinder finder(schedule, parts);
  std::vector<RepeatedSegment> best;
  int64_t least = finder.MemoryFor(best);
  for (int count = 2; count <= kMaxSegments; ++count) {
    std::vector<RepeatedSegment> segments = finder.Find(finder.Split(count));
    const int64_t memory = finder.MemoryFor(segments);
    if (memory >= least) continue;
    least = memory;
    best = std::move(segments);
  }
  return best;
}

void RepeatSegments(const std::vector<RepeatedSegment>& segments,
                    size_t backward_begin, Schedule* schedule) {
  const std::vector<Step>& steps = schedule->steps();
  std::multimap<size_t, Step> copies;
  for (const RepeatedSegment& segment : segments) {
    std::vector<bool> is_written(schedule->buffers().size());
    for (const BufferId buffer : segment.writes) is_written[buffer] = true;
    size_t reader = backward_begin;
    const auto reads = [&](const Step& step) {
      return std::any_of(step.reads.begin(), step.reads.end(),
                         [&](BufferId buffer) { return is_written[buffer]; });
    };
    while (reader < steps.size() && !reads(steps[reader])) ++reader;
    if (reader == steps.size()) continue;
    for (const size_t index : segment.steps) {
      Step copy = steps[index];
      copy.is_again = true;
      copies.emplace(reader, std::move(copy));
    }
  }
  schedule->Insert(std::move(copies));
}

}  // namespace convgrad::onednn
