// Computes pooling and upsampling of activations in blocks of channels. Lists,
// made once for each axis, say which input positions an output position reads.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "backends/kernels/operators/channel_blocks.h"

namespace convgrad {

// For each position of one axis, a list of positions of another axis, each with
// a weight. Value type.
class PositionLists {
 public:
  struct Entry {
    int32_t position;
    float weight;
  };

  // Begins `count` lists with at most `entries` entries in all, which lie in
  // [0, extent).
  PositionLists(int64_t extent, int64_t count, int64_t entries);
  // Adds an entry to the next list.
  void Add(int64_t position, double weight) {
    entries_.push_back(
        {static_cast<int32_t>(position), static_cast<float>(weight)});
  }
  void EndList() { first_.push_back(std::ssize(entries_)); }

  int64_t count() const { return std::ssize(first_) - 1; }
  int64_t extent() const { return extent_; }
  // Returns the number of entries of all lists.
  int64_t entries() const { return std::ssize(entries_); }
  // Returns the bytes of memory of `count` lists.
  static int64_t BytesFor(int64_t count, int64_t entries);
  absl::Span<const Entry> Of(int64_t i) const {
    return absl::MakeConstSpan(entries_).subspan(first_[i],
                                                 first_[i + 1] - first_[i]);
  }
  // Entry (j, w) of list i becomes entry (i, w) of list j.
  PositionLists Transposed() const;

 private:
  std::vector<int64_t> first_;
  std::vector<Entry> entries_;
  int64_t extent_;
};

// A window of a pooling along one axis. Requires: kernel, stride, dilation
// >= 1.
struct PoolWindow {
  int64_t in, kernel, stride, dilation, pad_begin, pad_end, out;
};
// Returns for each output the inputs in its window, without padding. Their
// weights are `weight` of the output and the number of these inputs, or 1.
using WindowWeight = absl::FunctionRef<float(int64_t output, int64_t inputs)>;
PositionLists WindowLists(
    const PoolWindow& window,
    WindowWeight weight = [](int64_t, int64_t) { return 1.0F; });
// Returns PyTorch's adaptive windows,
// [floor(o * in / out), ceil((o + 1) * in / out)), for means or, if `is_sum`,
// for sums.
PositionLists AdaptiveLists(int64_t in, int64_t out, bool is_sum = false);
// Return the lists of an upsampling. `scale` is the number of input positions
// per output position: in / out, or 1 / scale_factor if that was given. It has
// no effect if corners are aligned. Nearest positions are computed in f32, as
// in PyTorch, to get the same positions.
PositionLists NearestLists(int64_t in, int64_t out, double scale);
PositionLists LinearLists(int64_t in, int64_t out, double scale,
                          bool align_corners);

// The lists of all spatial axes. Value type.
struct PoolLists {
  // Requires: 1 to 3 axes. Missing leading axes have one position.
  static PoolLists Of(std::vector<PositionLists> axes);

  std::array<PositionLists, 3> axes;
  PoolLists Transposed() const;
  int64_t in() const;   // product of the extents
  int64_t out() const;  // product of the counts
  // Returns the number of entries of all results in one plane.
  double taps() const;
  // Returns the bytes of memory.
  int64_t bytes() const;
};

// One pooling. blocks.spatial is lists.in(); the result has lists.out().
// Requires: blocks.spatial < 2^31.
struct Pooling {
  ChannelBlocks blocks;
  const PoolLists* lists;
};

// Computes average pooling and upsampling: y[o] = the sum of weight * x[i] over
// the entries of o. The weights of the axes are multiplied. With Transposed()
// lists, and the result's shape in `blocks`, it computes the gradients.
void PoolWeighted(const Pooling& pooling, const void* x, void* y, RunParts run);

// Computes max pooling: y[o] = the largest x[i], the first of equal ones. NaN
// counts as the largest number; of several NaN the last is chosen. An empty
// window gives -Inf. `chosen`, which may be null, has an int32 for each element
// of y: the position in the input's image, or -1 for an empty window.
void PoolMax(const Pooling& pooling, const void* x, void* y, int32_t* chosen,
             RunParts run);

// dx[i] = sum of dy[o] over the outputs that have chosen i. `blocks` is the
// forward's, `transposed` its lists' Transposed().
struct PoolMaxBackward {
  const PoolLists* transposed;
  const int32_t* chosen;
  const void* dy;
  void* dx;
};
void PoolMaxGradient(const ChannelBlocks& blocks,
                     const PoolMaxBackward& tensors, RunParts run);

}  // namespace convgrad
