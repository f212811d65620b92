#include "backends/core/half_depthwise.h"

#include <algorithm>

#include "backends/core/checked_math.h"

namespace convgrad {
namespace {

using half_depthwise::Tap;
using half_depthwise::TapTable;

// Channels that one item has at most, and those that stay together.
constexpr int64_t kMaxChunk = 128;
constexpr int64_t kGrain = 16;

}  // namespace

HalfDepthwise::Axis HalfDepthwise::MakeAxis(const SpatialAxis& axis) {
  Axis made = {axis.in, axis.out, axis.kernel, {}, {}};
  for (int64_t o = 0; o < axis.out; ++o) {
    std::vector<Tap> taps;
    for (int64_t k = 0; k < axis.kernel; ++k) {
      const int64_t i = o * axis.stride + k * axis.dilation - axis.pad_begin;
      if (i < 0 || i >= axis.in) continue;
      taps.push_back({static_cast<int32_t>(k), static_cast<int32_t>(i)});
    }
    made.of_out.Append(taps);
  }
  for (int64_t i = 0; i < axis.in; ++i) {
    std::vector<Tap> taps;
    for (int64_t k = 0; k < axis.kernel; ++k) {
      const int64_t steps = i + axis.pad_begin - k * axis.dilation;
      if (steps < 0 || steps % axis.stride != 0) continue;
      const int64_t o = steps / axis.stride;
      if (o >= axis.out) continue;
      taps.push_back({static_cast<int32_t>(k), static_cast<int32_t>(o)});
    }
    made.of_in.Append(taps);
  }
  return made;
}

std::optional<HalfDepthwise> HalfDepthwise::Make(const ConvProblem& problem) {
  if (problem.transposed || problem.axes.empty() || problem.axes.size() > 2 ||
      problem.groups != problem.in_channels ||
      problem.groups != problem.out_channels) {
    return std::nullopt;
  }
  HalfDepthwise made;
  made.batch_ = problem.batch;
  made.channels_ = problem.groups;
  made.chunk_ =
      CeilDiv(CeilDiv(problem.groups, CeilDiv(problem.groups, kMaxChunk)),
              kGrain) *
      kGrain;
  made.chunks_ = CeilDiv(problem.groups, made.chunk_);
  made.x_ = MakeAxis(problem.axes.back());
  made.y_ =
      MakeAxis(problem.axes.size() == 2 ? problem.axes[0] : SpatialAxis());
  if (made.taps() > half_depthwise::kMaxTaps) return std::nullopt;
  const TapTable& x = made.x_.of_out;
  const auto is_inner = [&](int64_t i) {
    return x.end(i) - x.begin(i) == made.x_.kernel;
  };
  made.inner_end_ = made.x_.out;
  while (made.inner_begin_ < made.x_.out && !is_inner(made.inner_begin_)) {
    ++made.inner_begin_;
  }
  while (made.inner_end_ > made.inner_begin_ &&
         !is_inner(made.inner_end_ - 1)) {
    --made.inner_end_;
  }
  return made;
}

HalfDepthwise::Item HalfDepthwise::ItemAt(int64_t index, int64_t rows) const {
  const int64_t chunk = index % chunks_ * chunk_;
  const int64_t row = index / chunks_;
  return {row / rows,
          row % rows,
          {chunk, std::min(chunk + chunk_, channels_), channels_}};
}

void HalfDepthwise::Forward(const void* data, const float* weight,
                            const float* bias, DataType dtype, void* out,
                            int64_t begin, int64_t end) const {
  for (int64_t i = begin; i < end; ++i) {
    const Item item = ItemAt(i, y_.out);
    const auto* image = static_cast<const uint16_t*>(data) +
                        item.image * y_.in * x_.in * channels_;
    GatherRow({image, &y_.of_out, &x_.of_out, x_.in, x_.out, x_.kernel},
              item.row, weight, bias, dtype, item.channels,
              static_cast<std::byte*>(out) + (item.image * y_.out + item.row) *
                                                 x_.out * channels_ *
                                                 ByteSizeOf(dtype));
  }
}

void HalfDepthwise::BackwardData(const float* weight, const void* grad,
                                 DataType dtype, void* grad_data, int64_t begin,
                                 int64_t end) const {
  for (int64_t i = begin; i < end; ++i) {
    const Item item = ItemAt(i, y_.in);
    const auto* image = static_cast<const uint16_t*>(grad) +
                        item.image * y_.out * x_.out * channels_;
    GatherRow({image, &y_.of_in, &x_.of_in, x_.out, x_.in, x_.kernel}, item.row,
              weight, nullptr, dtype, item.channels,
              static_cast<std::byte*>(grad_data) +
                  (item.image * y_.in + item.row) * x_.in * channels_ *
                      ByteSizeOf(dtype));
  }
}

void HalfDepthwise::BackwardWeight(const void* data, const void* grad,
                                   float* sums, int64_t begin,
                                   int64_t end) const {
  for (int64_t i = begin; i < end; ++i) {
    const Item item = ItemAt(i, y_.out);
    const auto* image = static_cast<const uint16_t*>(data) +
                        item.image * y_.in * x_.in * channels_;
    const auto* row = static_cast<const uint16_t*>(grad) +
                      (item.image * y_.out + item.row) * x_.out * channels_;
    for (const Tap* y = y_.of_out.begin(item.row); y != y_.of_out.end(item.row);
         ++y) {
      AddRow({image + y->at * x_.in * channels_, row, &x_.of_out, x_.out,
              x_.kernel, inner_begin_, inner_end_},
             item.channels, sums + y->tap * x_.kernel * channels_);
    }
    AddElements(row, x_.out, item.channels, sums + taps() * channels_);
  }
}

}  // namespace convgrad
