#include "backends/kernels/operators/windows/pooling.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "backends/core/checked_math.h"

namespace convgrad {
namespace {

// The taps of a window that lie in the input.
struct Taps {
  int64_t first;  // position of the first
  int64_t count;
};

// Returns the number of taps that lie in `room` positions, not more than the
// window has.
int64_t TapsIn(int64_t room, const PoolWindow& window) {
  // CeilDiv would overflow: the dilation may be the largest number.
  return room > 0 ? std::min(window.kernel, (room - 1) / window.dilation + 1)
                  : 0;
}

Taps TapsOf(const PoolWindow& window, int64_t output) {
  const int64_t begin = output * window.stride - window.pad_begin;
  const int64_t before = TapsIn(-begin, window);
  const int64_t end = TapsIn(window.in - begin, window);
  return {begin + before * window.dilation, std::max<int64_t>(end - before, 0)};
}

int64_t EntriesOf(const PoolWindow& window) {
  int64_t entries = 0;
  for (int64_t o = 0; o < window.out; ++o) entries += TapsOf(window, o).count;
  return entries;
}

}  // namespace

PositionLists::PositionLists(int64_t extent, int64_t count, int64_t entries)
    : extent_(extent) {
  first_.reserve(count + 1);
  first_.push_back(0);
  entries_.reserve(entries);
}

int64_t PositionLists::BytesFor(int64_t count, int64_t entries) {
  return SaturatingAdd(SaturatingMul(SaturatingAdd(count, 1), sizeof(int64_t)),
                       SaturatingMul(entries, sizeof(Entry)));
}

PositionLists PositionLists::Transposed() const {
  PositionLists result(count(), extent_, 0);
  // Holds the end of each list first. Filling the lists from behind turns it
  // into the begin of each list.
  result.first_.assign(extent_ + 1, 0);
  for (const Entry& entry : entries_) ++result.first_[entry.position];
  for (int64_t i = 0, sum = 0; i <= extent_; ++i) {
    result.first_[i] = sum += result.first_[i];
  }
  result.entries_.resize(entries_.size());
  for (int64_t i = count(); i-- > 0;) {
    const absl::Span<const Entry> list = Of(i);
    for (size_t j = list.size(); j-- > 0;) {
      result.entries_[--result.first_[list[j].position]] = {
          static_cast<int32_t>(i), list[j].weight};
    }
  }
  return result;
}

PositionLists WindowLists(const PoolWindow& window, WindowWeight weight) {
  PositionLists lists(window.in, window.out, EntriesOf(window));
  for (int64_t o = 0; o < window.out; ++o) {
    const Taps taps = TapsOf(window, o);
    for (int64_t i = 0; i < taps.count; ++i) {
      lists.Add(taps.first + i * window.dilation, weight(o, taps.count));
    }
    lists.EndList();
  }
  return lists;
}

PositionLists AdaptiveLists(int64_t in, int64_t out, bool is_sum) {
  // Neighbouring windows share at most one position.
  PositionLists lists(in, out, in + out);
  for (int64_t o = 0; o < out; ++o) {
    const int64_t begin = o * in / out;
    const int64_t end = ((o + 1) * in + out - 1) / out;
    for (int64_t position = begin; position < end; ++position) {
      lists.Add(position,
                is_sum ? 1.0 : 1.0 / static_cast<double>(end - begin));
    }
    lists.EndList();
  }
  return lists;
}

PositionLists NearestLists(int64_t in, int64_t out, double scale) {
  PositionLists lists(in, out, out);
  for (int64_t o = 0; o < out; ++o) {
    const float position =
        std::floor(static_cast<float>(o) * static_cast<float>(scale));
    lists.Add(std::min(static_cast<int64_t>(position), in - 1), 1);
    lists.EndList();
  }
  return lists;
}

PositionLists LinearLists(int64_t in, int64_t out, double scale,
                          bool align_corners) {
  PositionLists lists(in, out, 2 * out);
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
    lists.Add(below, 1 - weight);
    lists.Add(above, weight);
    lists.EndList();
  }
  return lists;
}

PoolLists PoolLists::Of(std::vector<PositionLists> axes) {
  PositionLists one(1, 1, 1);
  one.Add(0, 1);
  one.EndList();
  PoolLists lists{{one, one, one}};
  std::move(axes.begin(), axes.end(), lists.axes.end() - axes.size());
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

double PoolLists::taps() const {
  double taps = 1;
  for (const PositionLists& axis : axes) {
    taps *= static_cast<double>(axis.entries());
  }
  return taps;
}

int64_t PoolLists::bytes() const {
  int64_t bytes = 0;
  for (const PositionLists& axis : axes) {
    bytes += PositionLists::BytesFor(axis.count(), axis.entries());
  }
  return bytes;
}

}  // namespace convgrad
