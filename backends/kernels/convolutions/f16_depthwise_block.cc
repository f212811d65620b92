#include "backends/kernels/convolutions/f16_depthwise_block.h"

#include <cstring>

#include "backends/kernels/copies/strided_copy.h"
#include "backends/kernels/copies/transpose_tile.h"

namespace convgrad::f16_depthwise {
namespace {

// Returns the offset of the range's first element.
int64_t OffsetOf(const BlockRange& range) {
  const int64_t image = range.image * range.all_channels * range.all_elements;
  if (range.layout == Layout::kNXC) {
    return image + range.element * range.all_channels + range.channel;
  }
  return image + range.channel * range.all_elements + range.element;
}

bool IsInPlace(const BlockRange& range) {
  return range.layout == Layout::kNXC && range.channels == kBlock;
}

}  // namespace

DataBlock ReadBlock(const BlockRange& range, const void* activation,
                    uint16_t* copy) {
  const int64_t offset = OffsetOf(range);
  const auto* source = static_cast<const uint16_t*>(activation) + offset;
  if (IsInPlace(range)) return {source, range.all_channels};
  if (range.layout == Layout::kNXC) {
    std::memset(copy, 0, range.elements * kBlock * sizeof(*copy));
    const StridedLoop loops[] = {{range.elements, range.all_channels, kBlock},
                                 {range.channels, 1, 1}};
    CopyStrided(sizeof(*copy), loops, source, copy);
    return {copy, kBlock};
  }
  TransposeTile tile;
  tile.element_bytes = sizeof(*copy);
  tile.rows = range.channels;
  tile.padded_rows = kBlock;
  tile.columns = range.elements;
  tile.row_pitch = range.all_elements;
  tile.column_pitch = kBlock;
  tile.readable =
      range.images * range.all_channels * range.all_elements - offset;
  Transpose(tile, source, copy);
  return {copy, kBlock};
}

ResultBlock PlaceBlock(const BlockRange& range, DataType dtype,
                       void* activation, void* copy) {
  if (!IsInPlace(range)) return {copy, dtype, kBlock};
  return {static_cast<char*>(activation) + OffsetOf(range) * ByteSizeOf(dtype),
          dtype, range.all_channels};
}

void CommitBlock(const BlockRange& range, const ResultBlock& block,
                 void* activation) {
  if (IsInPlace(range)) return;
  const int64_t bytes = ByteSizeOf(block.dtype);
  char* target = static_cast<char*>(activation) + OffsetOf(range) * bytes;
  if (range.layout == Layout::kNXC) {
    const StridedLoop loops[] = {{range.elements, kBlock, range.all_channels},
                                 {range.channels, 1, 1}};
    return CopyStrided(static_cast<int>(bytes), loops, block.first, target);
  }
  TransposeTile tile;
  tile.element_bytes = static_cast<int>(bytes);
  tile.rows = tile.padded_rows = range.elements;
  tile.columns = range.channels;
  tile.row_pitch = kBlock;
  tile.column_pitch = range.all_elements;
  tile.readable = range.elements * kBlock;
  Transpose(tile, block.first, target);
}

}  // namespace convgrad::f16_depthwise
