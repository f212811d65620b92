#include "backends/onednn/networks/steps/elements/network_repeated.h"

#include <algorithm>

#include "backends/core/checked_math.h"
#include "backends/onednn/execution/onednn_library_step.h"

namespace convgrad::onednn {
namespace {

// A shorter run takes longer to set up than to repeat.
constexpr int64_t kShortestRun = 256;
// Elements of a piece of a run.
constexpr int64_t kPiece = 8192;

}  // namespace

std::optional<RepeatedRuns> RunsOf(const Dims& from, const Dims& to) {
  const Dims strides = BroadcastStrides(from, to);
  RepeatedRuns runs = {.length = 1, .count = 1, .axes = {}};
  size_t first = to.size();
  while (first > 0 &&
         (to[first - 1] == 1 || strides[first - 1] == runs.length)) {
    runs.length *= to[--first];
  }
  if (runs.length < kShortestRun) return std::nullopt;
  for (size_t i = 0; i < first; ++i) {
    runs.count *= to[i];
    runs.axes.push_back({to[i], strides[i]});
  }
  return runs;
}

void ForRuns(const RepeatedRuns& runs, const RunContext& context,
             absl::FunctionRef<void(int64_t, int64_t, int64_t)> piece) {
  const int64_t pieces = CeilDiv(runs.length, kPiece);
  context.ForParts(runs.count * pieces, [&](int64_t part) {
    const int64_t run = part / pieces, at = part % pieces * kPiece;
    piece(run * runs.length + at, OffsetOf(runs.axes, run) + at,
          std::min(kPiece, runs.length - at));
  });
}

void CombineRuns(const RepeatedRuns& runs, Combination combination,
                 const Combined& tensors, DataType dtype,
                 const RunContext& context) {
  const auto from = [&](const void* tensor, int64_t element) {
    return tensor == nullptr ? nullptr
                             : static_cast<const std::byte*>(tensor) +
                                   element * ByteSizeOf(dtype);
  };
  ForRuns(runs, context, [&](int64_t rows, int64_t b, int64_t count) {
    const ChannelBlocks piece = {
        .batch = 1, .channels = 1, .spatial = count, .dtype = dtype};
    Combine(piece, combination,
            {.a = from(tensors.a, rows),
             .b = from(tensors.b, b),
             .y = static_cast<std::byte*>(tensors.y) + rows * ByteSizeOf(dtype),
             .dy = from(tensors.dy, rows)},
            [](int64_t parts, auto part) {
              for (int64_t i = 0; i < parts; ++i) part(i);
            });
  });
}

BufferId AddRepeated(const std::string& value, const NetworkTensor& like,
                     NetworkBuilder* builder) {
  const NetworkTensor from = builder->Value(value, Form::kRows);
  const DataType dtype = like.blocks.dtype;
  NetworkTensor rows =
      TensorLike(like.dims, dtype, Form::kRows, builder->options().block);
  rows.buffer = builder->AddBuffer(rows.blocks.bytes());
  PhysicalLayout layout;
  const Dims strides = BroadcastStrides(from.dims, like.dims);
  for (size_t i = 0; i < strides.size(); ++i) {
    layout.axes.push_back({.extent = like.dims[i], .stride = strides[i]});
  }
  AddReorder({layout, dtype, from.buffer}, ElementsOf(rows), builder);
  return InForm(rows, like.form, builder->options().block, builder).buffer;
}

void AddSumsOfRepeated(const NetworkTensor& gradient, const std::string& value,
                       NetworkBuilder* builder) {
  const NetworkTensor from =
      InForm(gradient, Form::kRows, builder->options().block, builder);
  AddSumsOfRepeats("gradient sum", from.buffer, from.dims,
                   builder->NewGradient(value, Form::kRows), builder);
}

BufferId AddChannelNumbers(absl::string_view kind, const NetworkTensor& operand,
                           const ChannelBlocks& whole, Schedule* schedule) {
  const int64_t padded = whole.padded_channels();
  const BufferId numbers =
      schedule->AddArray<float>(operand.blocks.batch * padded);
  schedule->Add(kind, {operand.buffer}, {numbers},
                [=, channels = whole.channels, from = operand.blocks,
                 b = operand.buffer](const RunContext& context) {
                  for (int64_t i = 0; i < from.batch * padded; ++i) {
                    const int64_t n = i / padded, c = i % padded;
                    const int64_t at = n * from.padded_channels() +
                                       (from.channels == 1 ? 0 : c);
                    const float value =
                        c < channels
                            ? static_cast<float>(LoadAsDouble(
                                  from.dtype,
                                  context.At(b) + at * ByteSizeOf(from.dtype)))
                            : 0;
                    context.Write<float>(numbers)[i] = value;
                  }
                });
  return numbers;
}

BufferId AddChannelNumbers(absl::string_view kind, float number,
                           const ChannelBlocks& whole, Schedule* schedule) {
  const BufferId numbers = schedule->AddArray<float>(whole.padded_channels());
  schedule->Add(kind, {}, {numbers},
                [=, channels = whole.channels,
                 padded = whole.padded_channels()](const RunContext& context) {
                  auto* const to = context.Write<float>(numbers);
                  std::fill_n(to, padded, 0.0f);
                  std::fill_n(to, channels, number);
                });
  return numbers;
}

void StoreChannelSums(const double* sums, int64_t channels,
                      const ChannelBlocks& operand, std::byte* image) {
  double total = 0;
  for (int64_t c = 0; c < channels; ++c) total += sums[c];
  for (int64_t c = 0; c < operand.padded_channels(); ++c) {
    const double value =
        c >= operand.channels ? 0 : (operand.channels == 1 ? total : sums[c]);
    StoreRounded(operand.dtype, value, image + c * ByteSizeOf(operand.dtype));
  }
}

}  // namespace convgrad::onednn
