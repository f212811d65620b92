#include "backends/onednn/library/onednn_elements.h"

#include <algorithm>

#include "backends/kernels/copies/element_convert.h"

namespace convgrad::onednn {

void BlockReader::Fill(int64_t offset) {
  const int64_t count = std::min(kBlock, count_ - offset);
  ConvertRun(dtype_, static_cast<const uint16_t*>(data_) + offset,
             DataType::kF32, block_, count);
  begin_ = offset;
  end_ = offset + count;
}

}  // namespace convgrad::onednn
