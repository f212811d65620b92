#include "backends/kernels/convolutions/f16_depthwise.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "backends/core/checked_math.h"
#include "backends/kernels/convolutions/f16_depthwise_block.h"
#include "backends/kernels/convolutions/f16_depthwise_rows.h"

namespace convgrad {

using f16_depthwise::BlockRange;
using f16_depthwise::BlockTap;
using f16_depthwise::DataBlock;
using f16_depthwise::kBlock;
using f16_depthwise::Pass;
using f16_depthwise::Phase;
using f16_depthwise::Range;
using f16_depthwise::ResultBlock;
using f16_depthwise::Tap;

namespace {

// Largest number of taps of a kernel.
constexpr int64_t kMaxTaps = 256;

// Limit on the scratch of an item; the library computes longer rows.
constexpr int64_t kMaxScratchBytes = 64 << 20;

constexpr float kZeros[kBlock] = {};

constexpr int64_t kFloatBytes = sizeof(float);

// Returns the part of a block from an element on; a null block stays null.
DataBlock From(DataBlock block, int64_t element) {
  if (block.first != nullptr) block.first += element * block.pitch;
  return block;
}
ResultBlock From(ResultBlock block, int64_t element) {
  if (block.first == nullptr) return block;
  block.first = static_cast<std::byte*>(block.first) +
                element * block.pitch * ByteSizeOf(block.dtype);
  return block;
}

void FillZeros(const ResultBlock& block, int64_t elements) {
  auto* first = static_cast<std::byte*>(block.first);
  const int64_t size = ByteSizeOf(block.dtype);
  for (int64_t i = 0; i < elements; ++i) {
    std::memset(first + i * block.pitch * size, 0, kBlock * size);
  }
}

}  // namespace

// A band of rows of a result, for one block of channels.
struct F16Depthwise::Item {
  int64_t image;
  int64_t channel, channels;
  Range rows;
  Range source;  // padded
};

// Scratch arrays with kBlock channels per element.
struct F16Depthwise::Scratch {
  float* source;   // padded
  float* partial;  // partial results
  void* result;    // a copy of the result, of any dtype
  float* weight;   // by tap
  double* sums;    // by tap, then of the source itself
  uint16_t* half;  // a copy of an operand
};

std::optional<F16Depthwise> F16Depthwise::Make(const ConvProblem& problem) {
  if (problem.transposed || problem.axes.empty() || problem.axes.size() > 2 ||
      problem.groups != problem.in_channels ||
      problem.groups != problem.out_channels) {
    return std::nullopt;
  }
  const SpatialAxis x = problem.axes.back();
  const SpatialAxis y =
      problem.axes.size() == 2 ? problem.axes[0] : SpatialAxis();
  F16Depthwise made;
  made.batch_ = problem.batch;
  made.channels_ = problem.groups;
  made.blocks_ = CeilDiv(problem.groups, kBlock);
  made.kernel_width_ = x.kernel;
  made.taps_ = y.kernel * x.kernel;
  if (made.taps_ > kMaxTaps) return std::nullopt;
  made.forward_ = {f16_depthwise::ForwardShape(y),
                   f16_depthwise::ForwardShape(x)};
  made.backward_ = {f16_depthwise::BackwardShape(y),
                    f16_depthwise::BackwardShape(x)};
  for (const Pass* pass : {&made.forward_, &made.backward_}) {
    const int64_t band = pass->band_rows * pass->x.result;
    const int64_t source = pass->source_rows * pass->x.padded;
    made.band_ = std::max(made.band_, band);
    made.source_ = std::max(made.source_, source);
  }
  if (made.scratch_bytes() > kMaxScratchBytes) return std::nullopt;
  return made;
}

int64_t F16Depthwise::scratch_bytes() const {
  const int64_t floats = source_ + 2 * band_ + taps_ + 2 * (taps_ + 1);
  return (floats * kFloatBytes + std::max(source_, band_) * 2) * kBlock;
}

F16Depthwise::Scratch F16Depthwise::Divide(void* scratch) const {
  auto* next = static_cast<float*>(scratch);
  const auto take = [&](int64_t elements) {
    return std::exchange(next, next + elements * kBlock);
  };
  Scratch made;
  made.source = take(source_);
  made.partial = take(band_);
  made.result = take(band_);
  made.weight = take(taps_);
  made.sums = reinterpret_cast<double*>(take(2 * (taps_ + 1)));
  made.half = reinterpret_cast<uint16_t*>(next);
  return made;
}

F16Depthwise::Item F16Depthwise::ItemAt(const Pass& pass, int64_t index) const {
  Item item;
  item.channel = index % blocks_ * kBlock;
  item.channels = std::min(kBlock, channels_ - item.channel);
  const int64_t band = index / blocks_;
  item.image = band / pass.bands();
  item.rows = pass.Band(band % pass.bands());
  item.source = pass.Source(item.rows);
  return item;
}

BlockRange F16Depthwise::RangeOf(const Item& item, Layout layout,
                                 const Range& rows, int64_t height,
                                 int64_t width) const {
  return {layout,
          batch_,
          channels_,
          height * width,
          item.image,
          item.channel,
          item.channels,
          rows.begin * width,
          rows.size() * width};
}

void F16Depthwise::LoadSource(const Pass& pass, const Item& item,
                              const Operand& source,
                              const Scratch& scratch) const {
  const auto inside = [&](int64_t row) {
    return std::clamp<int64_t>(row - pass.y.left, 0, pass.y.source);
  };
  const Range rows = {inside(item.source.begin), inside(item.source.end)};
  const DataBlock block = ReadBlock(
      RangeOf(item, source.layout, rows, pass.y.source, pass.x.source),
      source.data, scratch.half);
  const int64_t padded = pass.x.padded * kBlock;
  const int64_t left = pass.x.left * kBlock;
  const int64_t width = pass.x.source * kBlock;
  float* to = scratch.source;
  for (int64_t y = item.source.begin; y < item.source.end; ++y) {
    const int64_t row = y - pass.y.left - rows.begin;
    if (row < 0 || row >= rows.size()) {
      to = std::fill_n(to, padded, 0.0f);
      continue;
    }
    to = std::fill_n(to, left, 0.0f);
    f16_depthwise::Widen(
        {block.first + row * pass.x.source * block.pitch, block.pitch},
        pass.x.source, to);
    to = std::fill_n(to + width, padded - left - width, 0.0f);
  }
}

void F16Depthwise::LoadWeight(const Item& item, const float* weight,
                              const Scratch& scratch) const {
  float* to = scratch.weight;
  for (int64_t tap = 0; tap < taps_; ++tap) {
    to =
        std::copy_n(weight + tap * channels_ + item.channel, item.channels, to);
    to = std::fill_n(to, kBlock - item.channels, 0.0f);
  }
}

void F16Depthwise::RunItem(const Pass& pass, const Item& item,
                           const float* start, const ResultBlock& result,
                           const DataBlock& data,
                           const Scratch& scratch) const {
  absl::InlinedVector<BlockTap, 25> taps;
  for (const Phase& whole : pass.y.phases) {
    const Phase y = Clip(pass.y, whole, item.rows);
    if (y.count == 0) continue;
    for (const Phase& x : pass.x.phases) {
      taps.clear();
      for (const Tap& row : y.taps) {
        const int64_t first =
            (y.source_first + row.at - item.source.begin) * pass.x.padded +
            x.source_first;
        for (const Tap& tap : x.taps) {
          const int64_t at = (row.tap * kernel_width_ + tap.tap) * kBlock;
          taps.push_back({scratch.source + (first + tap.at) * kBlock,
                          scratch.weight + at, scratch.sums + at});
        }
      }
      const int64_t first =
          (y.first - item.rows.begin) * pass.x.result + x.first;
      RunTaps({y.count, x.count, pass.y.step * pass.x.result, pass.x.step,
               pass.y.source_step * pass.x.padded, pass.x.source_step},
              taps, start, From(result, first), From(data, first),
              scratch.partial);
    }
  }
}

void F16Depthwise::AddSums(const Item& item, const Scratch& scratch,
                           double* sums) const {
  const Range share = backward_.Share(item.rows);
  for (int64_t y = share.begin; y < share.end; ++y) {
    const int64_t row = y + backward_.y.left - item.source.begin;
    f16_depthwise::AddElements(
        scratch.source + (row * backward_.x.padded + backward_.x.left) * kBlock,
        backward_.x.source, scratch.sums + taps_ * kBlock);
  }
  for (int64_t tap = 0; tap <= taps_; ++tap) {
    const double* from = scratch.sums + tap * kBlock;
    double* to = sums + tap * channels_ + item.channel;
    for (int64_t c = 0; c < item.channels; ++c) to[c] += from[c];
  }
}

void F16Depthwise::Forward(const ForwardTensors& tensors, void* scratch,
                           int64_t begin, int64_t end) const {
  const Scratch own = Divide(scratch);
  for (int64_t i = begin; i < end; ++i) {
    const Item item = ItemAt(forward_, i);
    LoadSource(forward_, item, tensors.data, own);
    LoadWeight(item, tensors.weight, own);
    float bias[kBlock] = {};
    if (tensors.bias != nullptr) {
      std::copy_n(tensors.bias + item.channel, item.channels, bias);
    }
    const Result& out = tensors.out;
    const BlockRange range = RangeOf(item, out.layout, item.rows,
                                     forward_.y.result, forward_.x.result);
    const ResultBlock block =
        PlaceBlock(range, out.dtype, out.data, own.result);
    RunItem(forward_, item, bias, block, {}, own);
    CommitBlock(range, block, out.data);
  }
}

void F16Depthwise::Backward(const BackwardTensors& tensors, void* scratch,
                            int64_t begin, int64_t end) const {
  const Result& result = tensors.grad_data;
  const bool has_result = result.data != nullptr;
  const bool has_sums = tensors.sums != nullptr;
  const Scratch own = Divide(scratch);
  for (int64_t i = begin; i < end; ++i) {
    const Item item = ItemAt(backward_, i);
    const auto range = [&](Layout layout) {
      return RangeOf(item, layout, item.rows, backward_.y.result,
                     backward_.x.result);
    };
    LoadSource(backward_, item, tensors.grad, own);
    ResultBlock block;
    DataBlock data;
    if (has_result) {
      LoadWeight(item, tensors.weight, own);
      block = PlaceBlock(range(result.layout), result.dtype, result.data,
                         own.result);
      if (!backward_.is_covered) {
        FillZeros(block, item.rows.size() * backward_.x.result);
      }
    }
    if (has_sums) {
      data = ReadBlock(range(tensors.data.layout), tensors.data.data, own.half);
      std::fill_n(own.sums, (taps_ + 1) * kBlock, 0.0);
    }
    RunItem(backward_, item, kZeros, block, data, own);
    if (has_result) CommitBlock(range(result.layout), block, result.data);
    if (has_sums) AddSums(item, own, tensors.sums);
  }
}

}  // namespace convgrad
