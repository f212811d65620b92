#include "backends/kernels/operators/image_normalize.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "backends/kernels/copies/element_convert.h"

namespace convgrad {
namespace {

// Elements on their way through f32, a channel's positions at a time.
constexpr int64_t kChunk = 1024;

// A channel's positions in one image: first element, and the step between them.
struct ChannelRun {
  int64_t offset;
  int64_t stride;
};

ChannelRun RunOf(const ChannelBlocks& blocks, int64_t image, int64_t channel) {
  const int64_t plane = image * blocks.block_count() + channel / blocks.block;
  return {plane * blocks.spatial * blocks.block + channel % blocks.block,
          blocks.block};
}

// Calls body with a null pointer to elements of so many bytes.
template <typename Body>
void WithBytes(DataType dtype, const Body& body) {
  switch (ByteSizeOf(dtype)) {
    case 1:
      return body(static_cast<uint8_t*>(nullptr));
    case 2:
      return body(static_cast<uint16_t*>(nullptr));
    default:
      return body(static_cast<uint32_t*>(nullptr));
  }
}

// Copies strided elements into a row; the other way round from a row.
void Gather(DataType dtype, const void* x, const ChannelRun& run, int64_t count,
            void* row) {
  WithBytes(dtype, [&](auto* bits) {
    using Bits = std::remove_pointer_t<decltype(bits)>;
    const auto* from = static_cast<const Bits*>(x) + run.offset;
    auto* to = static_cast<Bits*>(row);
    for (int64_t i = 0; i < count; ++i) to[i] = from[i * run.stride];
  });
}

void Scatter(DataType dtype, const void* row, const ChannelRun& run,
             int64_t count, void* y) {
  WithBytes(dtype, [&](auto* bits) {
    using Bits = std::remove_pointer_t<decltype(bits)>;
    const auto* from = static_cast<const Bits*>(row);
    auto* to = static_cast<Bits*>(y) + run.offset;
    for (int64_t i = 0; i < count; ++i) to[i * run.stride] = from[i];
  });
}

void ToFloats(DataType dtype, const void* row, int64_t count, float* values) {
  if (dtype != DataType::kU8) {
    return ConvertRun(dtype, row, DataType::kF32, values, count);
  }
  const auto* bytes = static_cast<const uint8_t*>(row);
  for (int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(bytes[i]);
}

// The chunk of one channel from position `begin` on.
struct Chunk {
  int64_t image = 0, channel = 0, begin = 0, count = 0;
};

void NormalizeChunk(const ChannelBlocks& image, const void* x,
                    const ImageStatistics& statistics,
                    const ChannelBlocks& result, void* y, const Chunk& chunk) {
  uint32_t row[kChunk];
  float values[kChunk];
  ChannelRun from = RunOf(image, chunk.image, chunk.channel);
  from.offset += chunk.begin * from.stride;
  Gather(image.dtype, x, from, chunk.count, row);
  ToFloats(image.dtype, row, chunk.count, values);
  const float mean = statistics.mean[chunk.channel];
  const float deviation = statistics.deviation[chunk.channel];
  for (int64_t i = 0; i < chunk.count; ++i) {
    values[i] = (values[i] - mean) / deviation;
  }
  ConvertRun(DataType::kF32, values, result.dtype, row, chunk.count);
  ChannelRun to = RunOf(result, chunk.image, chunk.channel);
  to.offset += chunk.begin * to.stride;
  Scatter(result.dtype, row, to, chunk.count, y);
}

}  // namespace

void NormalizeImage(const ChannelBlocks& image, const void* x,
                    const ImageStatistics& statistics,
                    const ChannelBlocks& result, void* y, RunParts run) {
  const int64_t chunks = (image.spatial + kChunk - 1) / kChunk;
  const int64_t row_bytes = result.block * ByteSizeOf(result.dtype);
  run(image.batch * chunks, [&](int64_t part) {
    Chunk chunk{.image = part / chunks, .begin = part % chunks * kChunk};
    chunk.count = std::min(kChunk, image.spatial - chunk.begin);
    if (result.padded_channels() > result.channels) {
      const int64_t last =
          chunk.image * result.block_count() + result.block_count() - 1;
      std::memset(static_cast<char*>(y) +
                      (last * result.spatial + chunk.begin) * row_bytes,
                  0, chunk.count * row_bytes);
    }
    for (; chunk.channel < image.channels; ++chunk.channel) {
      NormalizeChunk(image, x, statistics, result, y, chunk);
    }
  });
}

}  // namespace convgrad
