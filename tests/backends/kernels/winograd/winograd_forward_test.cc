// Tests Winograd's forward, and the backward-data pass that it computes too,
// against the definition.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "backends/kernels/winograd/winograd.h"
#include "gtest/gtest.h"
#include "tests/backends/kernels/simd_targets.h"
#include "tests/backends/kernels/winograd/winograd_example.h"

namespace convgrad::winograd {
namespace {

// What a pass returned, and its output in row-major order.
struct Result {
  bool is_computed;
  Image image;
};

// Runs Forward over `from`; `is_turned`: as the backward-data pass.
Result RunPass(Example* example, const Shape& shape, const Image& from,
               Image to, bool is_turned, const Epilogue& epilogue = {},
               int64_t threads = 1, bool is_backward_order = false) {
  const Weights weights = {example->weights.data(),
                           example->shape.out_channels,
                           example->shape.in_channels,
                           nullptr,
                           is_turned,
                           shape.block,
                           0,
                           -1,
                           shape.kernel_depth};
  const auto run = PartsOf(threads, is_backward_order);
  Floats x(BlockedFloats(from, shape.block));
  Floats y(BlockedFloats(to, shape.block), NAN);
  Floats transformed(TransformedFloats(weights), NAN);
  Floats scratch(threads * ForwardScratch(shape), NAN);
  Blocked(from, shape.block, x.data());
  const bool is_computed =
      TransformWeights(weights, transformed.data(), run) &&
      Forward(shape, epilogue,
              {x.data(), transformed.data(), y.data(), scratch.data()}, run);
  EXPECT_TRUE(y.IsGuardIntact() && transformed.IsGuardIntact() &&
              scratch.IsGuardIntact());
  if (is_computed && epilogue.bias == nullptr) {
    for (const float value : y.values()) EXPECT_FALSE(std::isnan(value));
  }
  ForEach(to, [&](auto n, auto c, auto oy, auto ox) {
    *to.At(n, c, oy, ox) =
        y.data()[BlockedOffset(to, shape.block, n, c, oy, ox)];
  });
  return {is_computed, to};
}

// Returns the output of RunPass, computed in rounds of two blocks of channels.
Image InRounds(Example* example, const Shape& shape, const Image& from,
               Image to, bool is_turned, const Epilogue& epilogue) {
  Weights weights = {example->weights.data(),
                     example->shape.out_channels,
                     example->shape.in_channels,
                     nullptr,
                     is_turned,
                     shape.block,
                     0,
                     -1,
                     shape.kernel_depth};
  Floats x(BlockedFloats(from, shape.block));
  Floats y(BlockedFloats(to, shape.block), NAN);
  Blocked(from, shape.block, x.data());
  for (int64_t first = 0; first < shape.out_blocks(); first += 2) {
    const Shape some = SomeOutputs(shape, first, 2);
    weights.first_out_block = first;
    weights.out_blocks = some.out_blocks();
    Floats transformed(TransformedFloats(weights), NAN);
    Floats scratch(ForwardScratch(some), NAN);
    EXPECT_TRUE(
        TransformWeights(weights, transformed.data(), PartsOf(1)) &&
        Forward(some, epilogue,
                {x.data(), transformed.data(), y.data(), scratch.data()},
                PartsOf(1)));
    EXPECT_TRUE(transformed.IsGuardIntact() && scratch.IsGuardIntact());
  }
  EXPECT_TRUE(y.IsGuardIntact());
  ForEach(to, [&](auto n, auto c, auto oy, auto ox) {
    *to.At(n, c, oy, ox) =
        y.data()[BlockedOffset(to, shape.block, n, c, oy, ox)];
  });
  return to;
}

Result RunForward(Example* example, const Epilogue& epilogue = {}) {
  return RunPass(example, example->shape, example->x, example->y, false,
                 epilogue);
}

std::function<float()> Integers() {
  return [generator = std::mt19937(1)]() mutable {
    return static_cast<float>(static_cast<int>(generator() % 17) - 8);
  };
}
std::function<float()> Reals() {
  return [generator = std::mt19937(2),
          normal = std::normal_distribution<float>()]() mutable {
    return normal(generator);
  };
}

TEST(WinogradForward, HasTheSameBitsInRoundsOfChannels) {
  ForEachSimdTarget([] {
    for (const Shape& shape : Shapes()) {
      Example example(shape, Reals());
      std::vector<float> bias(shape.out_channels);
      for (size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<float>(i);
      const Epilogue epilogue = {.bias = bias.data()};
      EXPECT_EQ(InRounds(&example, shape, example.x, example.y, false, epilogue)
                    .values,
                RunForward(&example, epilogue).image.values);
      const Shape back = BackwardDataShape(shape);
      EXPECT_EQ(
          InRounds(&example, back, example.y, example.x, true, {}).values,
          RunPass(&example, back, example.y, example.x, true).image.values);
    }
  });
}

TEST(WinogradForward, IsExactOnIntegers) {
  ForEachSimdTarget([] {
    for (const Shape& shape : Shapes()) {
      Example example(shape, Integers());
      Image expected = example.y;
      example.ForProducts([&](auto n, auto o, auto oy, auto ox, auto c, auto iy,
                              auto ix, auto w) {
        *expected.At(n, o, oy, ox) +=
            *example.x.At(n, c, iy, ix) * example.weights[w];
      });
      const Result result = RunForward(&example);
      EXPECT_TRUE(result.is_computed);
      EXPECT_EQ(result.image.values, expected.values)
          << shape.in_height << " x " << shape.in_width;
    }
  });
}

TEST(WinogradForward, WithTurnedWeightsIsBackwardData) {
  ForEachSimdTarget([] {
    for (const Shape& shape : Shapes()) {
      Example example(shape, Integers());
      for (float& value : example.y.values) value = Integers()();
      Image expected = example.x;
      std::fill(expected.values.begin(), expected.values.end(), 0.0F);
      example.ForProducts([&](auto n, auto o, auto oy, auto ox, auto c, auto iy,
                              auto ix, auto w) {
        *expected.At(n, c, iy, ix) +=
            *example.y.At(n, o, oy, ox) * example.weights[w];
      });
      const Result result = RunPass(&example, BackwardDataShape(shape),
                                    example.y, example.x, true);
      EXPECT_TRUE(result.is_computed);
      EXPECT_EQ(result.image.values, expected.values);
    }
  });
}

// Returns the root of the summed squares of the products of all inputs of the
// element's tile with all weights.
double RootOverTile(Example* example, int64_t n, int64_t o, int64_t oy,
                    int64_t ox) {
  const Shape& shape = example->shape;
  const int64_t step = shape.dilation;
  const auto first_of = [=](int64_t at) {
    return at % step + at / step / 2 * 2 * step;
  };
  const int64_t front = oy / shape.out_height - shape.pad_front;
  const int64_t top = first_of(oy % shape.out_height) - shape.pad_top;
  const int64_t left = first_of(ox) - shape.pad_left;
  double squares = 0;
  for (int64_t plane = 0; plane < example->taps() / 9; ++plane) {
    const int64_t c = plane / shape.kernel_depth;
    const int64_t z = front + plane % shape.kernel_depth;
    double inputs = 0, weights = 0;
    for (int64_t i = 0; i < 16; ++i) {
      const int64_t y = top + i / 4 * step, x = left + i % 4 * step;
      if (!example->Has(z, y, x)) continue;
      inputs += std::pow(*example->x.At(n, c, z * shape.in_height + y, x), 2);
    }
    for (int64_t i = 0; i < 9; ++i) {
      weights +=
          std::pow(example->weights[o * example->taps() + plane * 9 + i], 2);
    }
    squares += inputs * weights;
  }
  return std::sqrt(squares);
}

// "Element by element" in proto/correctness.md, with R over the tile.
TEST(WinogradForward, HasTheErrorOfSumsOverTheTile) {
  ForEachSimdTarget([] {
    for (const Shape& shape : Shapes()) {
      Example example(shape, Reals());
      std::vector<double> expected(example.y.values.size());
      example.ForProducts([&](auto n, auto o, auto oy, auto ox, auto c, auto iy,
                              auto ix, auto w) {
        expected[example.y.At(n, o, oy, ox) - example.y.values.data()] +=
            double{*example.x.At(n, c, iy, ix)} * example.weights[w];
      });
      const Result result = RunForward(&example);
      const double factor =
          4 * std::sqrt(static_cast<double>(example.taps()) + 2);
      ForEach(example.y, [&](auto n, auto o, auto oy, auto ox) {
        const int64_t i = example.y.At(n, o, oy, ox) - example.y.values.data();
        const double size = std::fabs(expected[i]);
        const double root = RootOverTile(&example, n, o, oy, ox);
        EXPECT_NEAR(result.image.values[i], expected[i],
                    (1.01 * size + factor * std::max(size, root)) * 0x1p-24);
      });
    }
  });
}

TEST(WinogradForward, AddsUpManyChannelsInShortSums) {
  ForEachSimdTarget([] {
    for (const int64_t block : {8, 16}) {
      Example example({2, 1024, 16, 6, 6, 6, 6, 1, 1, block}, Reals());
      std::vector<double> expected(example.y.values.size());
      example.ForProducts([&](auto n, auto o, auto oy, auto ox, auto c, auto iy,
                              auto ix, auto w) {
        expected[example.y.At(n, o, oy, ox) - example.y.values.data()] +=
            double{*example.x.At(n, c, iy, ix)} * example.weights[w];
      });
      // One long sum has 1.0e-6, and sums of 64 channels have 3.1e-7.
      EXPECT_LT(RelativeError(RunForward(&example).image.values, expected),
                4.5e-7);
    }
  });
}

TEST(WinogradForward, HasTheSameBitsForAnyTeam) {
  ForEachSimdTarget([] {
    for (const Shape& shape : Shapes()) {
      Example example(shape, Reals());
      const Result result = RunForward(&example);
      for (const int64_t threads : {2, 3}) {
        EXPECT_EQ(RunPass(&example, shape, example.x, example.y, false, {},
                          threads, threads == 3)
                      .image.values,
                  result.image.values);
      }
    }
  });
}

TEST(WinogradForward, AppliesTheEpilogue) {
  const Shape shape = {1, 16, 32, 6, 6, 6, 6, 1, 1, 16};
  Example example(shape, Integers());
  Floats bias(32, 3), addend(32 * 6 * 6, -5);
  const Image plain = RunForward(&example).image;
  const std::pair<Pointwise, double (*)(double)> functions[] = {
      {{}, [](double x) { return x; }},
      {{Activation::kRelu}, [](double x) { return std::max(x, 0.0); }},
      {{Activation::kRelu6}, [](double x) { return std::clamp(x, 0.0, 6.0); }},
      {{Activation::kLeakyRelu, 0.125F},
       [](double x) { return x > 0 ? x : x / 8; }},
      {{Activation::kSilu}, [](double x) { return x / (1 + std::exp(-x)); }},
      {{Activation::kHardswish},
       [](double x) { return x * std::clamp(x + 3, 0.0, 6.0) / 6; }}};
  ForEachSimdTarget([&] {
    for (const auto& [function, exact] : functions) {
      const Image result =
          RunForward(&example, {bias.data(), addend.data(), function}).image;
      for (size_t i = 0; i < plain.values.size(); ++i) {
        const double x = plain.values[i] - 2;
        ASSERT_NEAR(result.values[i], exact(x), 4e-7 * std::abs(x))
            << static_cast<int>(function.activation);
      }
    }
  });
}

TEST(WinogradForward, RefusesWhatIsNotFiniteOrTooLarge) {
  ForEachSimdTarget([] {
    for (const float value :
         {NAN, std::numeric_limits<float>::infinity(), -1e20F, kLimit}) {
      for (const Shape& shape : {Shapes()[1], Shapes()[5], Shapes()[13]}) {
        Example example(shape, Reals());
        std::vector<float>& x = example.x.values;
        for (size_t i = 0; i < x.size(); i += 1 + x.size() / 50) {
          const float before = std::exchange(x[i], value);
          EXPECT_FALSE(RunForward(&example).is_computed) << value << " " << i;
          x[i] = before;
        }
        example.weights[7] = value;
        EXPECT_FALSE(RunForward(&example).is_computed);
      }
    }
  });
}

}  // namespace
}  // namespace convgrad::winograd
