// Tensors of a convolution for the tests of Winograd's kernels, and the
// convolution's definition in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/base/optimization.h"
#include "absl/functional/function_ref.h"
#include "backends/kernels/winograd/winograd.h"

namespace convgrad::winograd {

// Floats that are aligned to 64 bytes, with a line behind them that must stay.
class Floats {
 public:
  static constexpr float kGuard = 12345;

  explicit Floats(int64_t count, float value = 0)
      : memory_(count + 32, kGuard), count_(count) {
    while (reinterpret_cast<uintptr_t>(memory_.data() + first_) % 64 != 0) {
      ++first_;
    }
    std::fill_n(data(), count, value);
  }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;

  float* data() { return memory_.data() + first_; }
  std::vector<float> values() { return {data(), data() + count_}; }
  bool IsGuardIntact() {
    return std::all_of(memory_.begin() + first_ + count_, memory_.end(),
                       [](float value) { return value == kGuard; });
  }

 private:
  std::vector<float> memory_;
  int64_t count_;
  int64_t first_ = 0;
};

// Runs parts in the order of a team of `threads`, or backwards.
inline auto PartsOf(int64_t threads, bool is_backward = false) {
  return [=](int64_t count, absl::FunctionRef<void(int64_t, int64_t)> part) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = is_backward ? count - 1 - i : i;
      part(at, at % threads);
    }
  };
}

// A tensor in row-major order (N, C, H, W), which Blocked puts into blocks of
// channels. The planes of a 3-D image lie below each other: its height is that
// of all planes.
struct Image {
  int64_t batch, channels, height, width;
  std::vector<float> values =
      std::vector<float>(batch * channels * height * width);

  float* At(int64_t n, int64_t c, int64_t y, int64_t x) {
    return &values[((n * channels + c) * height + y) * width + x];
  }
};

// Returns the offset of an element in blocks of `block` channels.
inline int64_t BlockedOffset(const Image& image, int64_t block, int64_t n,
                             int64_t c, int64_t y, int64_t x) {
  const int64_t blocks = (image.channels + block - 1) / block;
  return (((n * blocks + c / block) * image.height + y) * image.width + x) *
             block +
         c % block;
}

// Calls visit(n, c, y, x) for each element.
inline void ForEach(
    const Image& image,
    const std::function<void(int64_t, int64_t, int64_t, int64_t)>& visit) {
  for (int64_t n = 0; n < image.batch; ++n) {
    for (int64_t c = 0; c < image.channels; ++c) {
      for (int64_t y = 0; y < image.height; ++y) {
        for (int64_t x = 0; x < image.width; ++x) visit(n, c, y, x);
      }
    }
  }
}

inline int64_t BlockedFloats(const Image& image, int64_t block) {
  return image.batch * ((image.channels + block - 1) / block) * block *
         image.height * image.width;
}
inline void Blocked(Image image, int64_t block, float* to) {
  ForEach(image, [&](auto n, auto c, auto y, auto x) {
    to[BlockedOffset(image, block, n, c, y, x)] = *image.At(n, c, y, x);
  });
}

// A convolution with all of its tensors.
struct Example {
  Shape shape;
  Image x, y;
  std::vector<float> weights;  // (O, C, kernel_depth, 3, 3)

  Example(const Shape& of, const std::function<float()>& draw)
      : shape(of),
        x{of.batch, of.in_channels, of.in_depth * of.in_height, of.in_width},
        y{of.batch, of.out_channels, of.out_depth * of.out_height,
          of.out_width},
        weights(of.out_channels * taps()) {
    for (float& value : x.values) value = draw();
    for (float& value : weights) value = draw();
  }

  // Returns whether the input has an element there.
  bool Has(int64_t z, int64_t y, int64_t x) const {
    return z >= 0 && y >= 0 && x >= 0 && z < shape.in_depth &&
           y < shape.in_height && x < shape.in_width;
  }
  // Returns the weights of an output channel.
  int64_t taps() const { return shape.in_channels * shape.kernel_depth * 9; }

  // Calls visit(n, o, oy, ox, c, iy, ix, weight's index) for each product.
  template <typename Visit>
  void ForProducts(const Visit& visit) {
    ForEach(y, [&](auto n, auto o, auto oy, auto ox) {
      for (int64_t i = 0; i < taps(); ++i) {
        const int64_t iz = oy / shape.out_height - shape.pad_front +
                           i / 9 % shape.kernel_depth;
        const int64_t iy =
            oy % shape.out_height - shape.pad_top + i % 9 / 3 * shape.dilation;
        const int64_t ix = ox - shape.pad_left + i % 3 * shape.dilation;
        if (Has(iz, iy, ix)) {
          visit(n, o, oy, ox, i / 9 / shape.kernel_depth,
                iz * shape.in_height + iy, ix, o * taps() + i);
        }
      }
    });
  }
};

// Returns the norm of the error over the norm of the expected values.
inline double RelativeError(const std::vector<float>& values,
                            const std::vector<double>& expected) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    error += std::pow(values[i] - expected[i], 2);
    norm += std::pow(expected[i], 2);
  }
  return std::sqrt(error / norm);
}

// Shapes with both sizes of blocks, channels that don't fill them, odd sizes,
// paddings that differ, more tiles than a part has, dilations, so many tiles
// that the gradient has many pieces, depths, and both of these with others.
inline std::vector<Shape> Shapes() {
  return {
      {1, 16, 16, 4, 4, 4, 4, 1, 1, 16},
      {2, 3, 5, 7, 6, 7, 6, 1, 1, 8},
      {1, 20, 33, 5, 9, 3, 7, 0, 0, 16},
      {1, 8, 24, 1, 1, 1, 1, 1, 1, 8},
      {1, 17, 9, 6, 5, 8, 7, 2, 2, 8},
      {3, 40, 48, 13, 14, 13, 15, 1, 2, 16},
      {1, 16, 32, 31, 29, 28, 26, -1, 0, 16},
      {2, 160, 32, 3, 3, 3, 3, 1, 1, 16},
      {2, 16, 33, 28, 28, 28, 28, 2, 2, 16, 2},
      {1, 20, 24, 13, 15, 13, 15, 4, 4, 8, 4},
      {2, 17, 16, 9, 12, 5, 10, 1, 2, 16, 3},
      {1, 8, 9, 5, 3, 5, 3, 7, 7, 8, 7},
      {2, 8, 17, 96, 96, 96, 96, 1, 1, 8},
      {1, 20, 33, 5, 6, 5, 6, 1, 1, 16, 1, 4, 4, 3, 1},
      {2, 17, 16, 6, 5, 4, 3, 0, 0, 8, 1, 3, 1, 3, 0},
      {1, 8, 24, 6, 6, 6, 6, 1, 1, 8, 2, 3, 3, 1, 0},
      {3, 48, 32, 9, 7, 9, 7, 1, 1, 16, 1, 1, 5, 3, 3},
      {1, 16, 16, 4, 4, 4, 4, 1, 1, 16, 1, 5, 3, 2, -1},
      {1, 8, 24, 9, 10, 9, 10, 2, 2, 8, 2, 3, 3, 3, 1},
      {1, 8, 8, 48, 48, 48, 48, 1, 1, 8, 1, 8, 8, 3, 1},
  };
}

}  // namespace convgrad::winograd
