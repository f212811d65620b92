// `BlockReader` reads elements of any dtype as f32, one block at a time.
#pragma once

#include <cstdint>

#include "backends/core/data_type.h"

namespace convgrad::onednn {

// Elements per block; a block of f32 fits in the first-level cache.
inline constexpr int64_t kBlock = 1024;

// Reads the elements of one tensor without rounding. Owned by one thread.
class BlockReader {
 public:
  // Reads from `count` elements at `data`, which must outlive the reader.
  BlockReader(DataType dtype, const void* data, int64_t count)
      : dtype_(dtype), data_(data), count_(count) {}

  // Returns `count` elements from `offset` on. They are valid until the next
  // call. Fast if a call continues where the last one ended, however short it
  // is. Requires: at most kBlock elements, within the tensor.
  const float* Read(int64_t offset, int64_t count) {
    if (dtype_ == DataType::kF32) {
      return static_cast<const float*>(data_) + offset;
    }
    if (offset < begin_ || offset + count > end_) Fill(offset);
    return block_ + (offset - begin_);
  }

 private:
  // Converts elements from `offset` on until the block is full.
  void Fill(int64_t offset);

  DataType dtype_;
  const void* data_;
  int64_t count_;
  int64_t begin_ = 0, end_ = 0;  // range of elements in the block
  float block_[kBlock];
};

}  // namespace convgrad::onednn
