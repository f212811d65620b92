#include "backends/onednn/library/onednn_elements.h"

#include <algorithm>

#include "backends/kernels/copies/element_convert.h"

namespace convgrad::onednn {

void BlockReader::Gather(int64_t offset, int64_t stride, int64_t count) {
  const auto* from = static_cast<const uint16_t*>(data_) + offset;
  uint16_t gathered[kBlock];
  for (int64_t i = 0; i < count; ++i) gathered[i] = from[i * stride];
  ConvertRun(dtype_, gathered, DataType::kF32, block_, count);
  begin_ = end_ = offset;
}

void BlockReader::Fill(int64_t offset) {
  const int64_t count = std::min(kBlock, count_ - offset);
  ConvertRun(dtype_, static_cast<const uint16_t*>(data_) + offset,
             DataType::kF32, block_, count);
  begin_ = offset;
  end_ = offset + count;
}

}  // namespace convgrad::onednn
