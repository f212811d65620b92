// Reads and writes blocks of channels in activations for F16Depthwise.
#pragma once

#include <cstdint>

#include "backends/core/tensor_descriptor.h"
#include "backends/kernels/convolutions/f16_depthwise_rows.h"

namespace convgrad::f16_depthwise {

// Part of a dense activation in kNCX or kNXC: channels [channel, channel +
// channels), at most kBlock, of the elements [element, element + elements) of
// an image.
struct BlockRange {
  Layout layout;
  int64_t images, all_channels, all_elements;
  int64_t image;
  int64_t channel, channels;
  int64_t element, elements;
};

// Returns a range of f16: in place if its channels are contiguous in
// `activation`, otherwise a copy, in which missing channels are zeros. `copy`
// has room for kBlock channels of the range.
DataBlock ReadBlock(const BlockRange& range, const void* activation,
                    uint16_t* copy);

// Returns the place to which to write a range, in `activation` or in `copy`.
// CommitBlock copies it to `activation` if necessary.
ResultBlock PlaceBlock(const BlockRange& range, DataType dtype,
                       void* activation, void* copy);
void CommitBlock(const BlockRange& range, const ResultBlock& block,
                 void* activation);

}  // namespace convgrad::f16_depthwise
