// Tests convolutions of sequences and their gradients against the definition,
// with every instruction set.
#include "backends/kernels/convolutions/sequence_convolution.h"

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/backends/kernels/simd_targets.h"

namespace convgrad {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// A tensor in blocks of channels, aligned to 64 bytes.
class Sequences {
 public:
  Sequences(const SequenceShape& shape, int64_t channels, int64_t positions)
      : batch_(shape.batch),
        block_(shape.block),
        blocks_((channels + block_ - 1) / block_),
        positions_(positions),
        channels_(channels),
        memory_(batch_ * blocks_ * positions * block_ + 16, NAN) {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    first_ = (64 - address % 64) % 64 / sizeof(float);
  }
  Sequences(const Sequences&) = delete;
  Sequences& operator=(const Sequences&) = delete;

  float* data() { return memory_.data() + first_; }
  float& At(int64_t n, int64_t c, int64_t t) {
    return data()[((n * blocks_ + c / block_) * positions_ + t) * block_ +
                  c % block_];
  }

  template <class Draw>
  void Fill(const Draw& draw) {
    for (int64_t n = 0; n < batch_; ++n) {
      for (int64_t t = 0; t < positions_; ++t) {
        for (int64_t c = 0; c < blocks_ * block_; ++c) {
          At(n, c, t) = c < channels_ ? draw() : 0;
        }
      }
    }
  }
  void ExpectZeroPadding() {
    for (int64_t n = 0; n < batch_; ++n) {
      for (int64_t t = 0; t < positions_; ++t) {
        for (int64_t c = channels_; c < blocks_ * block_; ++c) {
          ASSERT_EQ(At(n, c, t), 0);
        }
      }
    }
  }

 private:
  const int64_t batch_, block_, blocks_, positions_, channels_;
  std::vector<float> memory_;
  int64_t first_;
};

void InReverse(int64_t count, absl::FunctionRef<void(int64_t)> part) {
  for (int64_t i = count; i-- > 0;) part(i);
}

float* Aligned(std::vector<float>* floats, int64_t count) {
  floats->assign(count + 16, NAN);
  const auto address = reinterpret_cast<uintptr_t>(floats->data());
  return floats->data() + (64 - address % 64) % 64 / sizeof(float);
}

// One convolution of integers, so that all sums are exact in f32.
struct Example {
  explicit Example(const SequenceShape& of)
      : shape(of),
        x(of, of.in_channels, of.axis.in),
        y(of, of.out_channels, of.axis.out),
        weights(of.out_channels * of.in_channels * of.axis.kernel),
        bias(of.out_channels) {
    std::mt19937 random(7);
    const auto draw = [&] {
      return static_cast<float>(std::uniform_int_distribution(-5, 5)(random));
    };
    x.Fill(draw);
    y.Fill(draw);
    for (float& weight : weights) weight = draw();
    for (float& one : bias) one = draw();
  }

  float& WeightAt(int64_t o, int64_t c, int64_t tap) {
    return weights[(o * shape.in_channels + c) * shape.axis.kernel + tap];
  }
  // Calls visit(o, c, tap, input position) for the products of an output.
  template <class Visit>
  void ForProducts(int64_t t, const Visit& visit) {
    for (int64_t tap = 0; tap < shape.axis.kernel; ++tap) {
      const int64_t at =
          t * shape.axis.stride + tap * shape.axis.dilation - shape.axis.pad;
      if (at < 0 || at >= shape.axis.in) continue;
      for (int64_t o = 0; o < shape.out_channels; ++o) {
        for (int64_t c = 0; c < shape.in_channels; ++c) visit(o, c, tap, at);
      }
    }
  }

  std::vector<double> ExpectedOutput() {
    std::vector<double> sums;
    for (int64_t n = 0; n < shape.batch; ++n) {
      for (int64_t t = 0; t < shape.axis.out; ++t) {
        std::vector<double> outputs(bias.begin(), bias.end());
        ForProducts(t, [&](int64_t o, int64_t c, int64_t tap, int64_t at) {
          outputs[o] += double{WeightAt(o, c, tap)} * x.At(n, c, at);
        });
        sums.insert(sums.end(), outputs.begin(), outputs.end());
      }
    }
    return sums;
  }

  SequenceShape shape;
  Sequences x, y;
  std::vector<float> weights, bias;
};

std::vector<SequenceShape> Shapes() {
  std::vector<SequenceShape> shapes;
  for (const int64_t block : {8, 16}) {
    shapes.insert(
        shapes.end(),
        {// A wide kernel, whose border has a set of taps for each output.
         {2, 16, 32, block, {50, 50, 17, 1, 1, 8}},
         // Channels that don't fill blocks, three blocks, dilation.
         {1, 15, 35, block, {40, 40, 5, 1, 4, 8}},
         // More than one chunk and short sum.
         {1, 9, 7, block, {300, 300, 3, 1, 2, 2}},
         // A stride, and padding at one end only.
         {2, 8, 24, block, {41, 14, 4, 3, 2, 5}},
         // Several slices of input channels.
         {1, 400, 17, block, {5, 5, 21, 1, 1, 10}},
         // Outputs that see padding only, no output, no image.
         {1, 8, 8, block, {3, 13, 1, 1, 1, 5}},
         {1, 8, 8, block, {2, 0, 3, 1, 1, 0}},
         {0, 8, 8, block, {4, 4, 3, 1, 1, 1}},
         // Input that no output sees.
         {1, 8, 8, block, {20, 3, 2, 1, 1, -4}},
         // A dilation and pads that are nearly as large as an int64.
         {1, 8, 8, block, {5, 5, 2, 1, int64_t{1} << 62, int64_t{1} << 61}}});
  }
  return shapes;
}

std::string ToText(const SequenceShape& shape) {
  return absl::StrCat(shape.batch, "x", shape.in_channels, "x", shape.axis.in,
                      " kernel ", shape.axis.kernel, " block ", shape.block);
}

TEST(SequenceConvolution, OutputIsTheSumOfProducts) {
  ForEachSimdTarget([] {
    for (const SequenceShape& shape : Shapes()) {
      SCOPED_TRACE(ToText(shape));
      Example example(shape);
      const std::vector<double> expected = example.ExpectedOutput();
      std::vector<float> memory;
      float* arranged = Aligned(&memory, ArrangedFloats(shape));
      ArrangeWeights(
          shape,
          {.weights = example.weights.data(), .bias = example.bias.data()},
          InReverse, arranged);
      Sequences y(shape, shape.out_channels, shape.axis.out);
      ConvolveSequences(shape, example.x.data(), arranged, InReverse, y.data());
      size_t i = 0;
      for (int64_t n = 0; n < shape.batch; ++n) {
        for (int64_t t = 0; t < shape.axis.out; ++t) {
          for (int64_t o = 0; o < shape.out_channels; ++o) {
            ASSERT_EQ(y.At(n, o, t), expected[i++])
                << n << " " << o << " " << t;
          }
        }
      }
      y.ExpectZeroPadding();
    }
  });
}

TEST(SequenceConvolution, TheMirrorGivesTheGradientOfTheInput) {
  ForEachSimdTarget([] {
    for (const SequenceShape& shape : Shapes()) {
      if (shape.axis.stride != 1) continue;
      SCOPED_TRACE(ToText(shape));
      Example example(shape);
      std::vector<double> expected(shape.batch * shape.axis.in *
                                   shape.in_channels);
      for (int64_t n = 0; n < shape.batch; ++n) {
        for (int64_t t = 0; t < shape.axis.out; ++t) {
          example.ForProducts(
              t, [&](int64_t o, int64_t c, int64_t tap, int64_t at) {
                expected[(n * shape.axis.in + at) * shape.in_channels + c] +=
                    double{example.WeightAt(o, c, tap)} * example.y.At(n, o, t);
              });
        }
      }
      const SequenceShape mirror = MirrorOf(shape);
      std::vector<float> memory;
      float* arranged = Aligned(&memory, ArrangedFloats(mirror));
      ArrangeWeights(mirror,
                     {.weights = example.weights.data(), .is_mirrored = true},
                     InReverse, arranged);
      Sequences dx(shape, shape.in_channels, shape.axis.in);
      ConvolveSequences(mirror, example.y.data(), arranged, InReverse,
                        dx.data());
      for (int64_t i = 0; i < std::ssize(expected); ++i) {
        const int64_t c = i % shape.in_channels, at = i / shape.in_channels;
        ASSERT_EQ(dx.At(at / shape.axis.in, c, at % shape.axis.in), expected[i])
            << i;
      }
      dx.ExpectZeroPadding();
    }
  });
}

TEST(SequenceConvolution, GradientOfWeightsIsTheSumOfProducts) {
  ForEachSimdTarget([] {
    for (const SequenceShape& shape : Shapes()) {
      SCOPED_TRACE(ToText(shape));
      Example example(shape);
      std::vector<double> expected(example.weights.size());
      for (int64_t n = 0; n < shape.batch; ++n) {
        for (int64_t t = 0; t < shape.axis.out; ++t) {
          example.ForProducts(t, [&](int64_t o, int64_t c, int64_t tap,
                                     int64_t at) {
            expected[(o * shape.in_channels + c) * shape.axis.kernel + tap] +=
                double{example.x.At(n, c, at)} * example.y.At(n, o, t);
          });
        }
      }
      std::vector<float> memory, got(expected.size(), NAN);
      float* sums = Aligned(&memory, ArrangedFloats(shape));
      AddUpSequenceGradient(shape, example.x.data(), example.y.data(),
                            InReverse, sums, got.data());
      for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], expected[i]);
    }
  });
}

TEST(SequenceConvolution, DepthwiseOutputIsTheSumOfProducts) {
  ForEachSimdTarget([] {
    for (SequenceShape shape : Shapes()) {
      shape.out_channels = shape.in_channels;
      for (const bool is_mirrored : {false, true}) {
        if (is_mirrored && shape.axis.stride != 1) continue;
        SCOPED_TRACE(ToText(shape));
        Example example(shape);
        const std::vector<float> weights(
            example.weights.begin(),
            example.weights.begin() + shape.in_channels * shape.axis.kernel);
        std::vector<float> arranged(DepthwiseFloats(shape), NAN);
        Sequences y(shape, shape.out_channels, shape.axis.out);
        ConvolveSequencesDepthwise(
            shape, example.x.data(),
            {weights.data(), is_mirrored, example.bias.data()}, InReverse,
            arranged.data(), y.data());
        for (int64_t i = 0; i < shape.batch * shape.axis.out; ++i) {
          const int64_t n = i / shape.axis.out, t = i % shape.axis.out;
          std::vector<double> sums(example.bias.begin(), example.bias.end());
          example.ForProducts(t, [&](int64_t o, int64_t c, int64_t tap,
                                     int64_t at) {
            if (o != c) return;
            const int64_t k = is_mirrored ? shape.axis.kernel - 1 - tap : tap;
            sums[c] += double{weights[c * shape.axis.kernel + k]} *
                       example.x.At(n, c, at);
          });
          for (int64_t c = 0; c < shape.out_channels; ++c) {
            ASSERT_EQ(y.At(n, c, t), sums[c]) << n << " " << c << " " << t;
          }
        }
        y.ExpectZeroPadding();
      }
    }
  });
}

TEST(SequenceConvolution, WhatIsNotFiniteReachesOnlyItsOwnSums) {
  ForEachSimdTarget([] {
    const SequenceShape shape{1, 8, 9, 16, {40, 40, 3, 1, 1, 1}};
    Example example(shape);
    example.x.At(0, 2, 20) = kInf;
    // Only padding meets this weight at output 0.
    for (int64_t o = 0; o < shape.out_channels; ++o) {
      example.WeightAt(o, 3, 0) = kInf;
    }
    for (int64_t t = 0; t < shape.axis.in; ++t) example.x.At(0, 3, t) = 1;
    std::vector<float> memory;
    float* arranged = Aligned(&memory, ArrangedFloats(shape));
    ArrangeWeights(shape, {.weights = example.weights.data()}, InReverse,
                   arranged);
    Sequences y(shape, shape.out_channels, shape.axis.out);
    ConvolveSequences(shape, example.x.data(), arranged, InReverse, y.data());
    for (int64_t o = 0; o < shape.out_channels; ++o) {
      EXPECT_TRUE(std::isfinite(y.At(0, o, 0))) << o;
      for (int64_t t = 1; t < shape.axis.out; ++t) {
        EXPECT_FALSE(std::isfinite(y.At(0, o, t))) << o << " " << t;
      }
    }
    y.ExpectZeroPadding();
  });
}

}  // namespace
}  // namespace convgrad
