#include "backends/kernels/pooling.h"

#include <algorithm>
#include <cmath>

namespace convgrad {
namespace {

using Lists = std::vector<std::vector<PositionLists::Entry>>;

PositionLists::Entry EntryOf(int64_t position, double weight) {
  return {static_cast<int32_t>(position), static_cast<float>(weight)};
}

// Returns the window's positions that lie in the input.
std::vector<int64_t> Positions(const PoolWindow& window, int64_t output) {
  std::vector<int64_t> positions;
  const int64_t begin = output * window.stride - window.pad_begin;
  for (int64_t tap = 0; tap < window.kernel; ++tap) {
    const int64_t position = begin + tap * window.dilation;
    if (position >= 0 && position < window.in) positions.push_back(position);
  }
  return positions;
}

}  // namespace

PositionLists::PositionLists(const Lists& lists, int64_t extent)
    : extent_(extent) {
  for (const std::vector<Entry>& list : lists) {
    entries_.insert(entries_.end(), list.begin(), list.end());
    first_.push_back(std::ssize(entries_));
  }
}

bool PositionLists::HasEmpty() const {
  return std::adjacent_find(first_.begin(), first_.end()) != first_.end();
}

PositionLists PositionLists::Transposed() const {
  Lists lists(extent_);
  for (int64_t i = 0; i < count(); ++i) {
    for (const Entry& entry : Of(i)) {
      lists[entry.position].push_back(EntryOf(i, entry.weight));
    }
  }
  return {lists, count()};
}

PositionLists WindowLists(const PoolWindow& window) {
  Lists lists(window.out);
  for (int64_t o = 0; o < window.out; ++o) {
    for (int64_t position : Positions(window, o)) {
      lists[o].push_back(EntryOf(position, 1));
    }
  }
  return {lists, window.in};
}

PositionLists AverageLists(const PoolWindow& window, bool include_pad) {
  Lists lists(window.out);
  for (int64_t o = 0; o < window.out; ++o) {
    const std::vector<int64_t> positions = Positions(window, o);
    // What ceil_mode puts behind the padding is not counted.
    const int64_t begin = o * window.stride - window.pad_begin;
    const int64_t padded =
        std::min(window.kernel, window.in + window.pad_end - begin);
    const int64_t length = include_pad ? padded : std::ssize(positions);
    for (int64_t position : positions) {
      lists[o].push_back(EntryOf(position, 1.0 / static_cast<double>(length)));
    }
  }
  return {lists, window.in};
}

PositionLists AdaptiveLists(int64_t in, int64_t out) {
  Lists lists(out);
  for (int64_t o = 0; o < out; ++o) {
    const int64_t begin = o * in / out;
    const int64_t end = ((o + 1) * in + out - 1) / out;
    for (int64_t position = begin; position < end; ++position) {
      lists[o].push_back(
          EntryOf(position, 1.0 / static_cast<double>(end - begin)));
    }
  }
  return {lists, in};
}

PositionLists NearestLists(int64_t in, int64_t out, double scale) {
  Lists lists(out);
  for (int64_t o = 0; o < out; ++o) {
    const float position =
        std::floor(static_cast<float>(o) * static_cast<float>(scale));
    lists[o] = {EntryOf(std::min(static_cast<int64_t>(position), in - 1), 1)};
  }
  return {lists, in};
}

PositionLists LinearLists(int64_t in, int64_t out, double scale,
                          bool align_corners) {
  Lists lists(out);
  for (int64_t o = 0; o < out; ++o) {
    const auto at = static_cast<double>(o);
    double position = std::max(scale * (at + 0.5) - 0.5, 0.0);
    if (align_corners) {
      position = out == 1 ? 0
                          : at * static_cast<double>(in - 1) /
                                static_cast<double>(out - 1);
    }
    const int64_t below = std::min(static_cast<int64_t>(position), in - 1);
    const int64_t above = std::min(below + 1, in - 1);
    const double weight = std::min(position - static_cast<double>(below), 1.0);
    lists[o] = {EntryOf(below, 1 - weight), EntryOf(above, weight)};
  }
  return {lists, in};
}

PoolLists PoolLists::Of(absl::Span<const PositionLists> axes) {
  const PositionLists one({{{0, 1}}}, 1);
  PoolLists lists{{one, one, one}};
  std::copy(axes.begin(), axes.end(), lists.axes.end() - axes.size());
  return lists;
}

PoolLists PoolLists::Transposed() const {
  return {{axes[0].Transposed(), axes[1].Transposed(), axes[2].Transposed()}};
}

int64_t PoolLists::in() const {
  return axes[0].extent() * axes[1].extent() * axes[2].extent();
}

int64_t PoolLists::out() const {
  return axes[0].count() * axes[1].count() * axes[2].count();
}

}  // namespace convgrad
