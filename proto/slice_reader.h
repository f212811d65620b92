// `SliceReader` reads the bytes of a message in the slices that gRPC received.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "grpcpp/support/slice.h"

namespace convgrad {

// Reads sequentially and frees slices after their last byte. Thread-compatible.
class SliceReader {
 public:
  explicit SliceReader(std::vector<grpc::Slice> slices)
      : slices_(std::move(slices)) {
    for (const grpc::Slice& slice : slices_) {
      remaining_ += std::ssize(slice);
    }
    SkipEmpty();
  }

  int64_t offset() const { return offset_; }
  int64_t remaining() const { return remaining_; }

  // Returns a varint of at most `max_bytes`; nullopt if it is longer, truncated
  // or has more than 64 bits.
  std::optional<uint64_t> ReadVarint(int max_bytes) {
    uint64_t value = 0;
    for (int i = 0; i < max_bytes && remaining_ > 0; ++i) {
      const uint8_t byte = slices_[at_].begin()[within_];
      Advance(1);
      const uint64_t bits = byte & 0x7f;
      if (i == 9 && bits > 1) return std::nullopt;
      value |= bits << (7 * i);
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }

  // Returns the next `size` bytes as references to their slices. Requires: size
  // <= remaining().
  std::vector<grpc::Slice> Take(int64_t size) {
    std::vector<grpc::Slice> pieces;
    while (size > 0) {
      const size_t chunk = NextChunk(size);
      pieces.push_back(slices_[at_].sub(within_, within_ + chunk));
      Advance(chunk);
      size -= static_cast<int64_t>(chunk);
    }
    return pieces;
  }

  // Appends the next `size` bytes to `*text`. Requires: size <= remaining().
  void Append(int64_t size, std::string* text) {
    while (size > 0) {
      const size_t chunk = NextChunk(size);
      text->append(
          reinterpret_cast<const char*>(slices_[at_].begin()) + within_, chunk);
      Advance(chunk);
      size -= static_cast<int64_t>(chunk);
    }
  }

 private:
  size_t NextChunk(int64_t size) const {
    return std::min(static_cast<size_t>(size), slices_[at_].size() - within_);
  }

  // Requires: size bytes are left in the current slice.
  void Advance(size_t size) {
    within_ += size;
    offset_ += static_cast<int64_t>(size);
    remaining_ -= static_cast<int64_t>(size);
    SkipEmpty();
  }

  void SkipEmpty() {
    while (at_ < slices_.size() && within_ == slices_[at_].size()) {
      slices_[at_] = grpc::Slice();
      ++at_;
      within_ = 0;
    }
  }

  std::vector<grpc::Slice> slices_;
  size_t at_ = 0;
  size_t within_ = 0;
  int64_t offset_ = 0;
  int64_t remaining_ = 0;
};

}  // namespace convgrad
