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

// The buffers that begin at one offset. No two of them are in use at once, so
// that a search in time finds those that a lifetime meets: a program of 10,000
// steps has tens of thousands of buffers at a few offsets.
struct Place {
  struct Use {
    Period period;
    int64_t end;
  };

  int64_t begin;
  std::vector<Use> uses;  // In the order of time.

  // Returns the first use that ends at `step` or later.
  std::vector<Use>::const_iterator From(int step) const {
    return std::partition_point(
        uses.begin(), uses.end(),
        [step](const Use& use) { return use.period.last < step; });
  }
};

// Returns the lowest offset where `bytes` are free throughout `lifetime`.
// `places` is sorted by `begin`.
int64_t LowestGap(const std::vector<Place>& places, int64_t bytes,
                  const Lifetime& lifetime) {
  int64_t offset = 0;
  for (const Place& place : places) {
    if (place.begin - offset >= bytes) break;
    for (const Period& period : lifetime.periods) {
      for (auto use = place.From(period.first);
           use != place.uses.end() && use->period.first <= period.last; ++use) {
        offset = std::max(offset, use->end);
      }
    }
  }
  return offset;
}

// Adds `bytes` at `offset` to `places`.
void Occupy(int64_t offset, int64_t bytes, const Lifetime& lifetime,
            std::vector<Place>* places) {
  auto place = std::partition_point(
      places->begin(), places->end(),
      [offset](const Place& other) { return other.begin < offset; });
  if (place == places->end() || place->begin > offset) {
    place = places->insert(place, {offset, {}});
  }
  for (const Period& period : lifetime.periods) {
    place->uses.insert(place->From(period.first), {period, offset + bytes});
  }
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
  std::vector<Place> places;
  for (const BufferId buffer : by_size) {
    const int64_t bytes = RoundUpToLine(buffers[buffer].bytes);
    const int64_t offset = LowestGap(places, bytes, lifetimes[buffer]);
    map.scratch_offsets[buffer] = offset;
    map.scratch_bytes = std::max(map.scratch_bytes, offset + bytes);
    if (bytes > 0) Occupy(offset, bytes, lifetimes[buffer], &places);
  }
  return map;
}

}  // namespace convgrad::onednn
