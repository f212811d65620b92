#include "backends/onednn/execution/onednn_memory_map.h"

#include <algorithm>

namespace convgrad::onednn {
int64_t RoundUpToLine(int64_t bytes) {
  constexpr int64_t kAlignment = 64;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

namespace {

// The steps in which a buffer is in use, both included.
struct Period {
  int first, last;

  bool Meets(const Period& other) const {
    return first <= other.last && other.first <= last;
  }
};

// The periods of a buffer. The second one begins at the first step that writes
// the buffer again.
struct Lifetime {
  std::vector<Period> periods;
  bool is_again = false;

  void Use(int now) {
    if (periods.empty()) periods.push_back({now, now});
    periods.back().last = now;
  }
  void WriteAgain(int now) {
    if (!is_again) periods.push_back({now, now});
    is_again = true;
  }
  bool Meets(const Lifetime& other) const {
    for (const Period& period : periods) {
      for (const Period& another : other.periods) {
        if (period.Meets(another)) return true;
      }
    }
    return false;
  }
};

std::vector<Lifetime> LifetimesOf(const Schedule& schedule) {
  std::vector<Lifetime> lifetimes(schedule.buffers().size());
  int now = 0;
  for (const Step& step : schedule.steps()) {
    for (const BufferId buffer : step.writes) {
      if (step.is_again) lifetimes[buffer].WriteAgain(now);
    }
    for (const auto* used : {&step.reads, &step.writes}) {
      for (const BufferId buffer : *used) lifetimes[buffer].Use(now);
    }
    ++now;
  }
  return lifetimes;
}

struct Placed {
  int64_t begin, end;
  Lifetime lifetime;
};

// Returns the lowest offset where `bytes` are free throughout `lifetime`.
// `placed` is sorted by `begin`.
int64_t LowestGap(const std::vector<Placed>& placed, int64_t bytes,
                  const Lifetime& lifetime) {
  int64_t offset = 0;
  for (const Placed& other : placed) {
    if (!other.lifetime.Meets(lifetime)) continue;
    if (other.begin - offset >= bytes) break;
    offset = std::max(offset, other.end);
  }
  return offset;
}

}  // namespace

// Places the largest buffers of scratch first, each at the lowest offset that
// is free while the buffer is in use.
MemoryMap PlaceBuffers(const Schedule& schedule,
                       const std::vector<bool>& on_tape) {
  const auto& buffers = schedule.buffers();
  const std::vector<Lifetime> lifetimes = LifetimesOf(schedule);
  MemoryMap map;
  map.tape_offsets.assign(buffers.size(), MemoryMap::kUnplaced);
  map.scratch_offsets.assign(buffers.size(), MemoryMap::kUnplaced);
  std::vector<BufferId> by_size;
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].area != Area::kOwn) continue;
    if (on_tape[i]) {
      map.tape_offsets[i] = map.tape_bytes;
      map.tape_bytes += RoundUpToLine(buffers[i].bytes);
    } else if (!lifetimes[i].periods.empty()) {
      by_size.push_back(static_cast<BufferId>(i));
    }
  }
  std::stable_sort(by_size.begin(), by_size.end(), [&](BufferId a, BufferId b) {
    return buffers[a].bytes > buffers[b].bytes;
  });
  std::vector<Placed> placed;
  for (const BufferId buffer : by_size) {
    const int64_t bytes = RoundUpToLine(buffers[buffer].bytes);
    const int64_t offset = LowestGap(placed, bytes, lifetimes[buffer]);
    map.scratch_offsets[buffer] = offset;
    map.scratch_bytes = std::max(map.scratch_bytes, offset + bytes);
    const Placed here = {offset, offset + bytes, lifetimes[buffer]};
    placed.insert(std::upper_bound(placed.begin(), placed.end(), here,
                                   [](const Placed& a, const Placed& b) {
                                     return a.begin < b.begin;
                                   }),
                  here);
  }
  return map;
}

}  // namespace convgrad::onednn
