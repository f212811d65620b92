// Makes the data for proofs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "absl/types/span.h"

namespace convgrad {

// Bytes aligned to 64 that begin as NaN in every dtype.
class NanBuffer {
 public:
  explicit NanBuffer(int64_t bytes)
      : bytes_(bytes),
        data_(static_cast<std::byte*>(
            ::operator new(std::max<int64_t>(bytes, 1), kAlignment))) {
    std::fill_n(data_.get(), bytes_, std::byte{0xff});
  }

  std::byte* data() const { return data_.get(); }
  absl::Span<std::byte> span() const {
    return absl::MakeSpan(data(), static_cast<size_t>(bytes_));
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(std::byte* data) const {
      ::operator delete(data, kAlignment);
    }
  };
  int64_t bytes_;
  std::unique_ptr<std::byte, Free> data_;
};

// Returns a number from -4 to 4 without a pattern, so that a swapped tap,
// channel or axis changes results. Uses splitmix64's finaliser (Vigna, public
// domain).
inline double IntegerAt(uint64_t seed, uint64_t position) {
  uint64_t z = (seed << 40) + (position + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return static_cast<double>((z ^ (z >> 31)) % 9) - 4;
}

}  // namespace convgrad
