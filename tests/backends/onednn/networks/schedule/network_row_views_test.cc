// Tests the places of views of views against places computed one by one.
#include "backends/onednn/networks/schedule/network_row_views.h"

#include <numeric>
#include <random>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/backends/onednn/networks/schedule/built_network.h"

namespace convgrad::onednn {
namespace {

using testing::ElementsAre;

// Returns the offset of each element of a value with these axes, in row-major
// order.
std::vector<int64_t> OffsetsAt(int64_t offset,
                               const std::vector<StridedAxis>& axes) {
  std::vector<int64_t> offsets = {offset};
  for (const StridedAxis& axis : axes) {
    std::vector<int64_t> finer;
    for (const int64_t first : offsets) {
      for (int64_t i = 0; i < axis.extent; ++i) {
        finer.push_back(first + i * axis.stride);
      }
    }
    offsets = std::move(finer);
  }
  return offsets;
}

std::vector<int64_t> OffsetsOf(const StridedPlace& place) {
  std::vector<StridedAxis> axes;
  for (const auto& axis : place.axes) {
    axes.insert(axes.end(), axis.begin(), axis.end());
  }
  return OffsetsAt(place.offset, axes);
}

StepView Whole(const Dims& dims) { return {0, RowMajorStrides(dims)}; }

TEST(NetworkRowViews, APermutedAxisMergesWithANeighbourThatLiesElsewhere) {
  // (L, N, 3, H * D), its queries as (L, N * H, D), then as (N, H, L, D).
  StridedPlace place = PlaceOf(Whole({5, 2, 3, 8}), {5, 2, 3, 8});
  place = *Composed(place, {8, {48, 24, 1}}, {5, 2, 8});
  place = *Composed(place, Whole({5, 4, 4}), {5, 4, 4});
  using Axis = std::vector<StridedAxis>;
  EXPECT_THAT(place.axes,
              ElementsAre(Axis{{5, 48}}, Axis{{2, 24}, {2, 4}}, Axis{{4, 1}}));
  place = *Composed(place, {0, {4, 16, 1}}, {4, 5, 4});
  place = *Composed(place, Whole({2, 2, 5, 4}), {2, 2, 5, 4});
  EXPECT_EQ(place.offset, 8);
  EXPECT_THAT(place.axes, ElementsAre(Axis{{2, 24}}, Axis{{2, 4}},
                                      Axis{{5, 48}}, Axis{{4, 1}}));
}

TEST(NetworkRowViews, WhatStridesCantDescribeHasNoPlace) {
  // Columns 0 to 2 of 4, as one axis of 6, of which each 4th begins a row.
  const StridedPlace part = PlaceOf({0, {4, 1}}, {2, 3});
  EXPECT_EQ(Composed(part, Whole({3, 2}), {3, 2}), std::nullopt);
  EXPECT_EQ(Composed(part, {1, {1}}, {4}), std::nullopt);
  EXPECT_EQ(Composed(part, {0, {2}}, {3}), std::nullopt);
  EXPECT_EQ(Composed(part, {2, {1}}, {2}), std::nullopt);
  EXPECT_EQ(Composed(part, Whole({0}), {0}), std::nullopt);
}

TEST(NetworkRowViews, AnExpandedAxisHasTheStrideZero) {
  const StridedPlace part = PlaceOf({0, {4, 1}}, {2, 3});
  const auto place = Composed(part, {3, {0, 1}}, {2, 3});
  ASSERT_TRUE(place.has_value());
  EXPECT_THAT(OffsetsOf(*place), ElementsAre(4, 5, 6, 4, 5, 6));
}

// Makes random views whose elements are all within a tensor of dims `from`.
class RandomViews {
 public:
  explicit RandomViews(uint32_t seed) : random_(seed) {}

  int64_t Below(int64_t count) {
    return std::uniform_int_distribution<int64_t>(0, count - 1)(random_);
  }

  std::pair<StepView, Dims> Next(const Dims& from) {
    StepView view = {0, RowMajorStrides(from)};
    Dims dims = from;
    const auto axis = static_cast<size_t>(Below(std::ssize(from)));
    switch (Below(4)) {
      case 0: {  // permute
        const size_t other = Below(std::ssize(from));
        std::swap(dims[axis], dims[other]);
        std::swap(view.strides[axis], view.strides[other]);
        break;
      }
      case 1: {  // slice
        const int64_t start = Below(from[axis]), step = 1 + Below(2);
        dims[axis] = 1 + Below((from[axis] - start - 1) / step + 1);
        view.offset = start * view.strides[axis];
        view.strides[axis] *= step;
        break;
      }
      case 2:  // reshape: merges two axes
        if (axis > 0) {
          dims[axis] *= dims[axis - 1];
          dims.erase(dims.begin() + static_cast<int64_t>(axis) - 1);
        }
        view.strides = RowMajorStrides(dims);
        break;
      default:  // reshape: splits an axis
        for (const int64_t part : {2, 3}) {
          if (dims[axis] % part != 0 || dims.size() > 5) continue;
          dims[axis] /= part;
          dims.insert(dims.begin() + static_cast<int64_t>(axis), part);
        }
        view.strides = RowMajorStrides(dims);
    }
    return {view, dims};
  }

 private:
  std::mt19937 random_;
};

TEST(NetworkRowViews, ChainsOfViewsHaveTheirElementsPlaces) {
  int composed = 0, refused = 0;
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    RandomViews views(seed);
    Dims dims = {6, 4, 1, 6};
    StridedPlace place = PlaceOf(Whole(dims), dims);
    for (int i = 0; i < 8; ++i) {
      const auto [view, next] = views.Next(dims);
      const std::vector<int64_t> before = OffsetsOf(place);
      const auto after = Composed(place, view, next);
      dims = next;
      if (!after) {
        ++refused;
        place = PlaceOf(Whole(dims), dims);
        continue;
      }
      ++composed;
      std::vector<int64_t> expected = OffsetsOf(PlaceOf(view, dims));
      for (int64_t& offset : expected) offset = before[offset];
      ASSERT_EQ(OffsetsOf(*after), expected) << seed << ", view " << i;
      place = *after;
    }
  }
  EXPECT_GT(composed, 10 * refused);
  EXPECT_GT(refused, 0);
}

TEST(NetworkRowViews, ACopyHasTheValuesElements) {
  Schedule schedule;
  const BufferId from = schedule.AddBuffer(24 * sizeof(float));
  const BufferId to = schedule.AddBuffer(24 * sizeof(float));
  NetworkTensor rows = TensorLike({4, 6}, DataType::kF32, Form::kRows, 16);
  rows.buffer = from;
  // Columns 2 and 5 of rows 0, 1; each with its axes exchanged.
  const RowsView view = {rows, {2, {{{2, 3}}, {{2, 6}}}}};
  AddCopyOf(view, Location(to).At(4 * sizeof(float)), {2, 1}, "view",
            &schedule);
  BuffersOf buffers(schedule);
  std::vector<float> values(24);
  std::iota(values.begin(), values.end(), 0.0F);
  buffers.Set(from, values);
  buffers.Set(to, std::vector<float>(24, -1.0F));
  buffers.Run();
  std::vector<float> expected(24, -1.0F);
  expected[4] = 2, expected[5] = 8, expected[6] = 5, expected[7] = 11;
  EXPECT_EQ(buffers.Get<float>(to), expected);
}

TEST(NetworkRowViews, ABuilderReadsAViewWhereItLies) {
  const auto operation = OperationOf(
      "input x\na = permute(x, dims=[1, 0])\nb = relu(a)\noutput b\n", {{3, 4}},
      ProgramPart::kForward, DataType::kBF16);
  NetworkBuilder builder(*operation, {}, false);
  builder.BeginForwardOf("a", DataType::kBF16);
  const RowsView view = builder.AddView("a", "x", {0, {1, 4}});
  const BufferId x = builder.Value("x", Form::kRows).buffer;
  EXPECT_EQ(view.rows.buffer, x);
  EXPECT_EQ(builder.ViewOf("a").rows.buffer, x);
  // A group of another dtype gets a conversion of the step's result.
  const BufferId copy = builder.AddValue("a").buffer;
  builder.BeginForwardOf("b", DataType::kF32);
  const RowsView wide = builder.ViewOf("a");
  EXPECT_EQ(wide.rows.buffer, builder.Value("a", Form::kRows).buffer);
  EXPECT_NE(wide.rows.buffer, copy);
  EXPECT_EQ(wide.place, PlaceOf(Whole({4, 3}), {4, 3}));
}

}  // namespace
}  // namespace convgrad::onednn
