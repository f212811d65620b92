#include "backends/onednn/library/onednn_elements.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/backends/onednn/library/element_samples.h"

namespace convgrad::onednn {
namespace {

// Reads in order and out of order, with gaps, and the same element repeatedly.
TEST(BlockReader, ReadsEveryDtypeFromAnywhere) {
  constexpr int64_t kCount = 5000;
  for (DataType dtype : kAllDataTypes) {
    const Sample sample = MakeSample({dtype, Layout::kNCX, {1, 1, kCount}},
                                     SmallestSubnormal(dtype), true, 8);
    BlockReader reader(dtype, sample.bytes.data(), kCount);
    for (int64_t offset : {0, 7, 8, 1000, 1030, 3, 4998, 2500}) {
      SCOPED_TRACE(absl::StrCat(NameOf(dtype), " ", offset));
      for (int64_t length :
           {int64_t{1}, std::min<int64_t>(kBlock, kCount - offset)}) {
        const float* values = reader.Read(offset, length);
        Sample read({DataType::kF32, Layout::kNCX, {length}});
        for (int64_t i = 0; i < length; ++i) {
          StoreRounded(DataType::kF32, values[i], read.At(i));
          ASSERT_TRUE(IsRounded(read, i, sample.Value(offset + i)));
        }
      }
    }
  }
}

}  // namespace
}  // namespace convgrad::onednn
