// Elements of any dtype, read as f32 a block at a time.
#pragma once

#include <cstdint>

#include "backends/core/data_type.h"

namespace convgrad::onednn {

// Elements read at once: a block of f32 stays in the first-level cache.
inline constexpr int64_t kBlock = 1024;

// Elements as f32, each `stride` from the one before.
struct FloatRun {
  const float* first;
  int64_t stride;
};

// Reads the elements of one tensor, exactly. Owned by one thread.
class BlockReader {
 public:
  // `count` elements at `data`, which must outlive the reader.
  BlockReader(DataType dtype, const void* data, int64_t count)
      : dtype_(dtype), data_(data), count_(count) {}

  // Returns `count` elements: the one at `offset`, then each `stride` elements
  // further on. They stay until the next call. Fast where one call goes on
  // where the last one ended, however short. Requires: at most kBlock elements,
  // within the tensor.
  FloatRun Read(int64_t offset, int64_t stride, int64_t count) {
    if (dtype_ == DataType::kF32) {
      return {static_cast<const float*>(data_) + offset, stride};
    }
    if (stride != 1) {
      Gather(offset, stride, count);
    } else if (offset < begin_ || offset + count > end_) {
      Fill(offset);
    }
    return {block_ + (offset - begin_), 1};
  }

 private:
  // Converts elements, at `offset` and so on, to the block.
  void Gather(int64_t offset, int64_t stride, int64_t count);
  // The same with as many as the block has room for, one after the other.
  void Fill(int64_t offset);

  DataType dtype_;
  const void* data_;
  int64_t count_;
  int64_t begin_ = 0, end_ = 0;  // what the block holds of a row
  float block_[kBlock];
};

}  // namespace convgrad::onednn
