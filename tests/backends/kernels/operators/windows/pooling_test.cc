// Compares pooling and upsampling with plain loops in double, with every
// instruction set.
#include "backends/kernels/operators/windows/pooling.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/backends/kernels/operators/channel_tensors.h"
#include "tests/backends/kernels/simd_targets.h"

namespace convgrad {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

using Position = std::array<int64_t, 3>;

// Windows on three axes, outermost first.
using Windows = std::array<PoolWindow, 3>;
constexpr PoolWindow kOne = {1, 1, 1, 1, 0, 0, 1};
const Windows kWindows[] = {
    // The pooling of ResNet.
    {kOne, PoolWindow{8, 3, 2, 1, 1, 1, 4}, PoolWindow{9, 3, 2, 1, 1, 1, 5}},
    // ceil_mode: the last window goes beyond the padding.
    {kOne, PoolWindow{8, 3, 2, 1, 0, 0, 4}, PoolWindow{7, 4, 2, 1, 1, 1, 4}},
    // Windows that don't touch, so that some inputs are in no window.
    {kOne, kOne, PoolWindow{11, 2, 4, 1, 0, 0, 3}},
    // Dilated, in three dimensions.
    {PoolWindow{4, 2, 1, 2, 0, 0, 2}, PoolWindow{5, 3, 1, 1, 1, 1, 5},
     PoolWindow{6, 2, 2, 3, 0, 0, 2}},
};

int64_t Inputs(const Windows& windows) {
  return windows[0].in * windows[1].in * windows[2].in;
}
int64_t Outputs(const Windows& windows) {
  return windows[0].out * windows[1].out * windows[2].out;
}
Position OutputAt(const Windows& windows, int64_t o) {
  return {o / windows[2].out / windows[1].out,
          o / windows[2].out % windows[1].out, o % windows[2].out};
}

// Calls body(input position) for each input in an output's window, row by row.
template <typename Body>
void ForEachInput(const Windows& windows, int64_t output, const Body& body) {
  const Position at = OutputAt(windows, output);
  const auto input = [&](int axis, int64_t tap) {
    const PoolWindow& w = windows[axis];
    return at[axis] * w.stride - w.pad_begin + tap * w.dilation;
  };
  const auto inside = [&](int axis, int64_t i) {
    return i >= 0 && i < windows[axis].in;
  };
  for (int64_t a = 0; a < windows[0].kernel; ++a) {
    for (int64_t b = 0; b < windows[1].kernel; ++b) {
      for (int64_t c = 0; c < windows[2].kernel; ++c) {
        const Position i = {input(0, a), input(1, b), input(2, c)};
        if (!inside(0, i[0]) || !inside(1, i[1]) || !inside(2, i[2])) continue;
        body((i[0] * windows[1].in + i[1]) * windows[2].in + i[2]);
      }
    }
  }
}

// Returns PyTorch's divisor, the number of positions.
int64_t Divisor(const Windows& windows, int64_t output, bool include_pad) {
  int64_t inside = 0, all = 1;
  ForEachInput(windows, output, [&](int64_t) { ++inside; });
  for (int axis = 0; axis < 3; ++axis) {
    const PoolWindow& w = windows[axis];
    const int64_t begin =
        OutputAt(windows, output)[axis] * w.stride - w.pad_begin;
    all *= std::min(begin + w.kernel, w.in + w.pad_end) - begin;
  }
  return include_pad ? all : inside;
}

std::vector<ChannelBlocks> SomeBlocks(int64_t spatial) {
  std::vector<ChannelBlocks> all;
  for (DataType dtype : {DataType::kF32, DataType::kBF16}) {
    for (const auto& [batch, channels, block] :
         {Position{2, 5, 8}, Position{2, 32, 16}, Position{1, 37, 37},
          Position{2, 64, 64}, Position{0, 16, 16}}) {
      all.push_back({batch, channels, spatial, block, dtype});
    }
  }
  return all;
}

ChannelBlocks WithSpatial(ChannelBlocks blocks, int64_t spatial) {
  blocks.spatial = spatial;
  return blocks;
}

PoolLists MaxLists(const Windows& windows) {
  return PoolLists::Of({WindowLists(windows[0]), WindowLists(windows[1]),
                        WindowLists(windows[2])});
}

void ExpectMax(const Windows& windows, const ChannelBlocks& blocks,
               ChannelTensor x) {
  const ChannelBlocks results = WithSpatial(blocks, Outputs(windows));
  const PoolLists lists = MaxLists(windows);
  ChannelTensor y(results), dy = Random(results, 2), dx(blocks);
  if (results.size() > 0) dy.Set(0, 0, 0, NAN);
  std::vector<int32_t> chosen(results.size(), -7);
  PoolMax({blocks, &lists}, x.data(), y.data(), chosen.data(), InOrder);
  const PoolLists transposed = lists.Transposed();
  PoolMaxGradient(blocks, {&transposed, chosen.data(), dy.data(), dx.data()},
                  InOrder);

  std::vector<double> gradient(blocks.batch * blocks.channels * blocks.spatial);
  const auto index = [&](int64_t n, int64_t c, int64_t s) {
    return (n * blocks.channels + c) * blocks.spatial + s;
  };
  y.ForEach([&](int64_t n, int64_t c, int64_t o) {
    double best = -kInf;
    int64_t best_at = -1;
    ForEachInput(windows, o, [&](int64_t i) {
      const double value = x.At(n, c, i);
      if (best_at >= 0 && !(value > best) && !std::isnan(value)) return;
      best = value;
      best_at = i;
    });
    ASSERT_THAT(y.At(n, c, o), testing::NanSensitiveDoubleEq(best));
    gradient[index(n, c, best_at)] += dy.At(n, c, o);
  });
  dx.ForEach([&](int64_t n, int64_t c, int64_t i) {
    const double want = gradient[index(n, c, i)];
    ASSERT_EQ(std::isnan(dx.At(n, c, i)), std::isnan(want)) << c << " " << i;
    if (std::isnan(want)) return;
    // Up to 9 terms of at most about 4.
    ASSERT_NEAR(dx.At(n, c, i), want,
                UnitRoundoff(blocks.dtype) * std::abs(want) + 9 * 36e-8);
  });
  y.ExpectZeroPadding();
  dx.ExpectZeroPadding();
}

TEST(PoolingTest, MaxAndItsGradient) {
  ForEachSimdTarget([] {
    for (const Windows& windows : kWindows) {
      for (const ChannelBlocks& blocks : SomeBlocks(Inputs(windows))) {
        SCOPED_TRACE(ToText(blocks));
        ExpectMax(windows, blocks, Random(blocks, 1));
        // Many elements are equal; the first one gets the gradient.
        ChannelTensor x = Random(blocks, 1);
        x.ForEach([&](int64_t n, int64_t c, int64_t s) {
          x.Set(n, c, s, std::round(x.At(n, c, s)));
        });
        ExpectMax(windows, blocks, x);
        // NaN propagates. A window of -Inf also chooses an element.
        x.ForEach([&](int64_t n, int64_t c, int64_t s) {
          if (c % 4 == 1 && s % 5 == 2) x.Set(n, c, s, NAN);
          if (c % 4 == 2) x.Set(n, c, s, -kInf);
        });
        ExpectMax(windows, blocks, x);
      }
    }
  });
}

TEST(PoolingTest, ADilationMayBeTheLargestNumber) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const PositionLists one = WindowLists({8, 1, 1, kMost, 0, 0, 8});
  for (int64_t i = 0; i < 8; ++i) {
    ASSERT_EQ(one.Of(i).size(), 1u) << i;
    EXPECT_EQ(one.Of(i)[0].position, i);
  }
  // The second tap is in the part that ceil_mode adds.
  const PositionLists two =
      WindowLists({8, 2, kMost - 8, kMost - 2, 0, kMost - 9, 1});
  ASSERT_EQ(two.Of(0).size(), 1u);
  EXPECT_EQ(two.Of(0)[0].position, 0);
}

TEST(PoolingTest, MaxWithoutPositions) {
  const ChannelBlocks blocks = {1, 16, 72, 16};
  const PoolLists lists = MaxLists(kWindows[0]);
  ChannelTensor x = Random(blocks, 1);
  ChannelTensor y(WithSpatial(blocks, 20)), again(WithSpatial(blocks, 20));
  std::vector<int32_t> chosen(16 * 20);
  PoolMax({blocks, &lists}, x.data(), y.data(), chosen.data(), InOrder);
  PoolMax({blocks, &lists}, x.data(), again.data(), nullptr, OnThreeThreads);
  EXPECT_EQ(y.bytes(), again.bytes());
}

// A linear map of an image's positions, row by row of the result.
using Matrix = std::vector<std::vector<double>>;

// Compares lists and their transposes with the matrix.
void ExpectWeighted(const PoolLists& lists, const Matrix& matrix) {
  const int64_t in = std::ssize(matrix[0]), out = std::ssize(matrix);
  ASSERT_EQ(lists.in(), in);
  ASSERT_EQ(lists.out(), out);
  const PoolLists transposed = lists.Transposed();
  for (const ChannelBlocks& blocks : SomeBlocks(in)) {
    SCOPED_TRACE(ToText(blocks));
    const ChannelBlocks results = WithSpatial(blocks, out);
    ChannelTensor x = Random(blocks, 1), y(results);
    ChannelTensor dy = Random(results, 2), dx(blocks);
    PoolWeighted({blocks, &lists}, x.data(), y.data(), InOrder);
    PoolWeighted({results, &transposed}, dy.data(), dx.data(), InOrder);
    const auto expect = [&](double got, double want, double terms) {
      ASSERT_NEAR(got, want,
                  UnitRoundoff(blocks.dtype) * std::abs(want) +
                      static_cast<double>(in + out) *
                          UnitRoundoff(DataType::kF32) * terms);
    };
    y.ForEach([&](int64_t n, int64_t c, int64_t o) {
      double sum = 0, terms = 0;
      for (int64_t i = 0; i < in; ++i) {
        sum += matrix[o][i] * x.At(n, c, i);
        terms += std::abs(matrix[o][i] * x.At(n, c, i));
      }
      expect(y.At(n, c, o), sum, terms);
    });
    dx.ForEach([&](int64_t n, int64_t c, int64_t i) {
      double sum = 0, terms = 0;
      for (int64_t o = 0; o < out; ++o) {
        sum += matrix[o][i] * dy.At(n, c, o);
        terms += std::abs(matrix[o][i] * dy.At(n, c, o));
      }
      expect(dx.At(n, c, i), sum, terms);
    });
    y.ExpectZeroPadding();
    dx.ExpectZeroPadding();
  }
}

// Returns for each output the elements that it averages, with the padding of
// the padded input if `include_pad`. Requires: a dilation of 1.
PositionLists AverageLists(const PoolWindow& window, bool include_pad) {
  PositionLists lists(window.in, window.out, window.out * window.kernel);
  for (int64_t o = 0; o < window.out; ++o) {
    const int64_t begin = o * window.stride - window.pad_begin;
    const int64_t end =
        std::min(begin + window.kernel, window.in + window.pad_end);
    const int64_t first = std::max<int64_t>(begin, 0);
    const int64_t last = std::min(end, window.in);
    const int64_t length = include_pad ? end - begin : last - first;
    for (int64_t i = first; i < last; ++i) {
      lists.Add(i, 1.0 / static_cast<double>(length));
    }
    lists.EndList();
  }
  return lists;
}

TEST(PoolingTest, AverageAndItsGradient) {
  ForEachSimdTarget([] {
    for (const Windows& windows : kWindows) {
      for (bool include_pad : {false, true}) {
        if (windows[0].dilation > 1 || windows[2].dilation > 1) continue;
        Matrix matrix(Outputs(windows), std::vector<double>(Inputs(windows)));
        for (int64_t o = 0; o < Outputs(windows); ++o) {
          const auto divisor =
              static_cast<double>(Divisor(windows, o, include_pad));
          ForEachInput(windows, o,
                       [&](int64_t i) { matrix[o][i] += 1 / divisor; });
        }
        ExpectWeighted(PoolLists::Of({AverageLists(windows[0], include_pad),
                                      AverageLists(windows[1], include_pad),
                                      AverageLists(windows[2], include_pad)}),
                       matrix);
      }
    }
  });
}

TEST(PoolingTest, AdaptiveAverage) {
  ForEachSimdTarget([] {
    // Windows of 7 rows: [0, 3), [2, 5), [4, 7); global in the other axis.
    Matrix matrix(3, std::vector<double>(7 * 4));
    for (int64_t o = 0; o < 3; ++o) {
      for (int64_t i = 0; i < 3 * 4; ++i) {
        matrix[o][2 * o * 4 + i] = 1.0 / (3 * 4);
      }
    }
    ExpectWeighted(PoolLists::Of({AdaptiveLists(7, 3), AdaptiveLists(4, 1)}),
                   matrix);
  });
}

// Numbers of one sign, whose roundings all have the same sign.
TEST(PoolingTest, AddsManyTapsWithinTheErrorBound) {
  ForEachSimdTarget([] {
    for (const auto& [height, width] :
         {std::array<int64_t, 2>{28, 28}, {1, 3000}, {3000, 1}, {512, 512}}) {
      const PoolLists sums = PoolLists::Of(
          {AdaptiveLists(height, 1, true), AdaptiveLists(width, 1, true)});
      const int64_t taps = height * width;
      const ChannelBlocks blocks{1, 16, taps, 16};
      ChannelTensor x(blocks), y(WithSpatial(blocks, 1));
      x.ForEach([&](int64_t n, int64_t c, int64_t s) {
        x.Set(n, c, s, 1.0 / static_cast<double>(c + 3));
      });
      PoolWeighted({blocks, &sums}, x.data(), y.data(), InOrder);
      const auto count = static_cast<double>(taps);
      const double bound =
          (4 * std::sqrt(count + 2) + 1) * UnitRoundoff(DataType::kF32);
      y.ForEach([&](int64_t n, int64_t c, int64_t s) {
        const double want = count * x.At(n, c, 0);
        EXPECT_NEAR(y.At(n, c, s), want, bound * want) << taps << " " << c;
      });
      // Each of these windows chooses the only input.
      const ChannelBlocks one = WithSpatial(blocks, 1);
      const std::vector<int32_t> chosen(blocks.size(), 0);
      PoolMaxGradient(one, {&sums, chosen.data(), x.data(), y.data()}, InOrder);
      y.ForEach([&](int64_t n, int64_t c, int64_t s) {
        const double want = count * x.At(n, c, 0);
        EXPECT_NEAR(y.At(n, c, s), want, bound * want) << taps << " " << c;
      });
    }
  });
}

TEST(PoolingTest, UpsamplesNearest) {
  ForEachSimdTarget([] {
    Matrix matrix(7, std::vector<double>(3));
    // floor(o * 3 / 7)
    const int64_t picked[] = {0, 0, 0, 1, 1, 2, 2};
    for (int64_t o = 0; o < 7; ++o) matrix[o][picked[o]] = 1;
    ExpectWeighted(PoolLists::Of({NearestLists(3, 7, 3.0 / 7)}), matrix);
  });
}

TEST(PoolingTest, UpsamplesLinearly) {
  ForEachSimdTarget([] {
    // PyTorch's numbers: 3 to 6 positions by half pixels, 3 to 5 with aligned
    // corners.
    ExpectWeighted(PoolLists::Of({LinearLists(3, 6, 0.5, false)}),
                   {{1, 0, 0},
                    {0.75, 0.25, 0},
                    {0.25, 0.75, 0},
                    {0, 0.75, 0.25},
                    {0, 0.25, 0.75},
                    {0, 0, 1}});
    ExpectWeighted(
        PoolLists::Of({LinearLists(3, 5, 0, true)}),
        {{1, 0, 0}, {0.5, 0.5, 0}, {0, 1, 0}, {0, 0.5, 0.5}, {0, 0, 1}});
    ExpectWeighted(PoolLists::Of({LinearLists(3, 1, 0, true)}), {{1, 0, 0}});
  });
}

// Large enough to bypass the caches, if they are aligned.
TEST(PoolingTest, LargeResultsHaveTheSameBits) {
  const PositionLists window = WindowLists({256, 3, 1, 1, 1, 1, 256});
  const PoolLists lists = PoolLists::Of({window, window});
  const PoolLists transposed = lists.Transposed();
  ForEachSimdTarget([&] {
    for (DataType dtype : {DataType::kF32, DataType::kBF16}) {
      const ChannelBlocks blocks{2, 32, 65536, 16, dtype};
      LargeTensor x(blocks, 0), aligned(blocks, 0), other(blocks, 4);
      const auto expect_same = [&](const auto& run) {
        run(aligned.data());
        EXPECT_FALSE(aligned == other);
        run(other.data());
        EXPECT_TRUE(aligned == other);
      };
      std::vector<int32_t> chosen(blocks.size());
      expect_same([&](void* y) {
        PoolMax({blocks, &lists}, x.data(), y, chosen.data(), InOrder);
      });
      expect_same([&](void* dx) {
        PoolMaxGradient(blocks, {&transposed, chosen.data(), x.data(), dx},
                        InOrder);
      });
      expect_same([&](void* y) {
        PoolWeighted({blocks, &lists}, x.data(), y, InOrder);
      });
    }
  });
}

}  // namespace
}  // namespace convgrad
