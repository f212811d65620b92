// `AlignedBuffer` owns bytes that start at a 64-byte boundary, as vector code
// needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace convgrad {

// Move-only. The contents are undefined after Allocate.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;

  // Errors: kResourceExhausted if the allocator has no such memory.
  static absl::StatusOr<AlignedBuffer> Allocate(int64_t size);

  std::byte* data() const { return data_.get(); }
  int64_t size() const { return size_; }
  absl::Span<const std::byte> bytes() const {
    return {data_.get(), static_cast<size_t>(size_)};
  }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };

  std::unique_ptr<std::byte[], Free> data_;
  int64_t size_ = 0;
};

}  // namespace convgrad
