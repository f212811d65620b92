// `ChannelTensor` is an activation in blocks of channels for tests of kernels.
// The functions here run a kernel's parts in different orders and on several
// threads.
#pragma once

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/kernels/copies/element_convert.h"
#include "backends/kernels/operators/channel_blocks.h"
#include "gtest/gtest.h"

namespace convgrad {

inline std::string ToText(const ChannelBlocks& blocks) {
  return absl::StrCat(NameOf(blocks.dtype), " ", blocks.batch, "x",
                      blocks.channels, "x", blocks.spatial, " in blocks of ",
                      blocks.block);
}

// All elements, including padding, are NaN at first.
class ChannelTensor {
 public:
  explicit ChannelTensor(const ChannelBlocks& blocks)
      : blocks_(blocks), bytes_(blocks.bytes(), 0xff) {}

  const ChannelBlocks& blocks() const { return blocks_; }
  void* data() { return bytes_.data(); }
  const std::vector<unsigned char>& bytes() const { return bytes_; }

  double At(int64_t n, int64_t c, int64_t s) const {
    return LoadAsDouble(blocks_.dtype, &bytes_[OffsetOf(n, c, s)]);
  }
  // Sets one element, rounded to the dtype.
  void Set(int64_t n, int64_t c, int64_t s, double value) {
    StoreRounded(blocks_.dtype, value, &bytes_[OffsetOf(n, c, s)]);
  }

  template <typename Body>
  void ForEach(const Body& body) const {
    for (int64_t n = 0; n < blocks_.batch; ++n) {
      for (int64_t c = 0; c < blocks_.channels; ++c) {
        for (int64_t s = 0; s < blocks_.spatial; ++s) body(n, c, s);
      }
    }
  }

  void ClearPadding() {
    ForEachPadding(
        [&](int64_t i) { StoreRounded(blocks_.dtype, 0, &bytes_[i]); });
  }
  void ExpectZeroPadding() const {
    ForEachPadding([&](int64_t i) {
      ASSERT_EQ(LoadAsDouble(blocks_.dtype, &bytes_[i]), 0) << "padding";
    });
  }

 private:
  // Calls `body` with the offset in bytes of each padding element.
  template <typename Body>
  void ForEachPadding(const Body& body) const {
    for (int64_t i = 0; i < blocks_.size(); ++i) {
      const int64_t plane = i / blocks_.block / blocks_.spatial;
      const int64_t channel =
          plane % blocks_.block_count() * blocks_.block + i % blocks_.block;
      if (channel >= blocks_.channels) body(i * ByteSizeOf(blocks_.dtype));
    }
  }

  int64_t OffsetOf(int64_t n, int64_t c, int64_t s) const {
    const int64_t plane = n * blocks_.block_count() + c / blocks_.block;
    const int64_t row = plane * blocks_.spatial + s;
    return (row * blocks_.block + c % blocks_.block) *
           ByteSizeOf(blocks_.dtype);
  }

  ChannelBlocks blocks_;
  std::vector<unsigned char> bytes_;
};

// Returns normally distributed elements around `mean`.
inline ChannelTensor Random(const ChannelBlocks& blocks, unsigned seed,
                            double mean = 0, double deviation = 1) {
  ChannelTensor tensor(blocks);
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal(mean, deviation);
  tensor.ForEach([&](int64_t n, int64_t c, int64_t s) {
    tensor.Set(n, c, s, normal(generator));
  });
  tensor.ClearPadding();
  return tensor;
}

// `LargeTensor` has elements from 0 to 60. Its first one lies `beyond` bytes
// after a multiple of 64, because kernels that write large results choose their
// stores by it.
class LargeTensor {
 public:
  LargeTensor(const ChannelBlocks& blocks, int beyond)
      : bytes_(blocks.bytes() + 128), size_(blocks.bytes()) {
    first_ = bytes_.data() + beyond +
             (64 - reinterpret_cast<uintptr_t>(bytes_.data()) % 64);
    std::vector<float> values(blocks.size());
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(i % 61);
    }
    ConvertRun(DataType::kF32, values.data(), blocks.dtype, first_,
               blocks.size());
  }

  void* data() { return first_; }
  friend bool operator==(const LargeTensor& a, const LargeTensor& b) {
    return a.size_ == b.size_ && std::memcmp(a.first_, b.first_, a.size_) == 0;
  }

 private:
  std::vector<char> bytes_;
  int64_t size_;
  char* first_;
};

using PartBody = absl::FunctionRef<void(int64_t)>;

inline void InOrder(int64_t count, PartBody body) {
  for (int64_t part = 0; part < count; ++part) body(part);
}

inline void Backwards(int64_t count, PartBody body) {
  for (int64_t part = count; part-- > 0;) body(part);
}

// Runs the parts on three threads; each thread takes the next part.
inline void OnThreeThreads(int64_t count, PartBody body) {
  std::atomic<int64_t> next = 0;
  const auto take = [&] {
    for (int64_t part; (part = next++) < count;) body(part);
  };
  std::thread second(take), third(take);
  take();
  second.join();
  third.join();
}

// Returns blocks of 8 and 16 channels and channels last, with channels that
// fill blocks and vectors and channels that don't, and with one part and many
// parts.
inline std::vector<ChannelBlocks> ManyBlocks() {
  std::vector<ChannelBlocks> all;
  for (DataType dtype : {DataType::kF32, DataType::kBF16}) {
    for (const ChannelBlocks& blocks :
         {ChannelBlocks{2, 5, 12, 8}, ChannelBlocks{3, 32, 7, 16},
          ChannelBlocks{2, 40, 9, 16}, ChannelBlocks{2, 37, 7, 37},
          ChannelBlocks{1, 3, 5, 3}, ChannelBlocks{4, 64, 3, 64},
          ChannelBlocks{3, 20, 900, 8}, ChannelBlocks{3, 20, 900, 20},
          ChannelBlocks{1, 1, 1, 16}, ChannelBlocks{0, 20, 6, 16},
          ChannelBlocks{2, 20, 0, 16}}) {
      all.push_back(blocks);
      all.back().dtype = dtype;
    }
  }
  return all;
}

}  // namespace convgrad
