// Tests Winograd's backward-weight pass against the definition.
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

// Returns an example whose y is the output's gradient.
Example IntegerExample(const Shape& shape) {
  Example example(shape, [generator = std::mt19937(1)]() mutable {
    return static_cast<float>(static_cast<int>(generator() % 17) - 8);
  });
  std::mt19937 generator(2);
  for (float& value : example.y.values) {
    value = static_cast<float>(static_cast<int>(generator() % 9) - 4);
  }
  return example;
}

// Returns the gradient of the weights; empty if the pass refused.
std::vector<float> RunGradient(const Example& example, int64_t threads = 1,
                               bool is_backward_order = false) {
  const Shape& shape = example.shape;
  Floats x(BlockedFloats(example.x, shape.block));
  Floats dy(BlockedFloats(example.y, shape.block));
  Floats dw(std::ssize(example.weights), NAN);
  Floats sums(GradientSums(shape), NAN);
  Floats scratch(threads * GradientScratch(shape), NAN);
  Blocked(example.x, shape.block, x.data());
  Blocked(example.y, shape.block, dy.data());
  const bool is_computed = BackwardWeight(
      shape, {x.data(), dy.data(), dw.data(), sums.data(), scratch.data()},
      threads, PartsOf(threads, is_backward_order));
  EXPECT_TRUE(dw.IsGuardIntact() && sums.IsGuardIntact() &&
              scratch.IsGuardIntact());
  return is_computed ? dw.values() : std::vector<float>();
}

// Returns the same, computed in rounds of two blocks of output channels.
std::vector<float> InRounds(const Example& example) {
  const Shape& shape = example.shape;
  Floats x(BlockedFloats(example.x, shape.block));
  Floats dy(BlockedFloats(example.y, shape.block));
  Floats dw(std::ssize(example.weights), NAN);
  Blocked(example.x, shape.block, x.data());
  Blocked(example.y, shape.block, dy.data());
  for (int64_t first = 0; first < shape.out_blocks(); first += 2) {
    const Shape some = SomeOutputs(shape, first, 2);
    Floats sums(GradientSums(some), NAN);
    Floats scratch(GradientScratch(some), NAN);
    EXPECT_TRUE(BackwardWeight(
        some, {x.data(), dy.data(), dw.data(), sums.data(), scratch.data()}, 1,
        PartsOf(1)));
    EXPECT_TRUE(dw.IsGuardIntact() && sums.IsGuardIntact() &&
                scratch.IsGuardIntact());
  }
  return dw.values();
}

TEST(WinogradGradient, IsExactOnIntegers) {
  ForEachSimdTarget([] {
    for (const Shape& shape : Shapes()) {
      Example example = IntegerExample(shape);
      std::vector<float> expected(example.weights.size());
      example.ForProducts([&](auto n, auto o, auto oy, auto ox, auto c, auto iy,
                              auto ix, auto w) {
        expected[w] +=
            *example.x.At(n, c, iy, ix) * *example.y.At(n, o, oy, ox);
      });
      EXPECT_EQ(RunGradient(example), expected);
    }
  });
}

TEST(WinogradGradient, AddsUpManyTilesInShortSums) {
  ForEachSimdTarget([] {
    std::normal_distribution<float> normal;
    std::mt19937 generator(3);
    const auto draw = [&] { return normal(generator); };
    Example example({1, 8, 8, 128, 128, 128, 128, 1, 1, 8}, draw);
    for (float& value : example.y.values) value = draw();
    std::vector<double> expected(example.weights.size());
    example.ForProducts([&](auto n, auto o, auto oy, auto ox, auto c, auto iy,
                            auto ix, auto w) {
      expected[w] +=
          double{*example.x.At(n, c, iy, ix)} * *example.y.At(n, o, oy, ox);
    });
    // One long sum has 6.8e-7, and sums of 128 tiles have 3.7e-7.
    EXPECT_LT(RelativeError(RunGradient(example), expected), 5e-7);
  });
}

TEST(WinogradGradient, HasTheSameBitsForAnyTeam) {
  ForEachSimdTarget([] {
    for (const Shape& shape : Shapes()) {
      Example example = IntegerExample(shape);
      for (float& value : example.x.values) value *= 1.1F;
      const std::vector<float> one = RunGradient(example);
      EXPECT_EQ(RunGradient(example, 2), one);
      EXPECT_EQ(RunGradient(example, 3, true), one);
    }
  });
}

TEST(WinogradGradient, HasTheSameBitsInRoundsOfChannels) {
  ForEachSimdTarget([] {
    std::vector<Shape> shapes = Shapes();
    // So many sums that a round alone would have more pieces of the tiles.
    shapes.push_back({1, 128, 528, 64, 64, 64, 64, 1, 1, 16});
    for (const Shape& shape : shapes) {
      Example example = IntegerExample(shape);
      for (float& value : example.x.values) value *= 1.1F;
      EXPECT_EQ(InRounds(example), RunGradient(example));
    }
  });
}

TEST(WinogradGradient, RefusesWhatIsNotFiniteOrTooLarge) {
  ForEachSimdTarget([] {
    for (const float value :
         {NAN, -std::numeric_limits<float>::infinity(), 1e20F, kLimit}) {
      for (const Shape& shape : {Shapes()[1], Shapes()[5], Shapes()[13]}) {
        Example example = IntegerExample(shape);
        for (auto* values : {&example.x.values, &example.y.values}) {
          for (size_t i = 0; i < values->size(); i += 1 + values->size() / 50) {
            const float before = std::exchange((*values)[i], value);
            EXPECT_TRUE(RunGradient(example).empty()) << value << " " << i;
            (*values)[i] = before;
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace convgrad::winograd
