// Compares transposes with plain loops, with every instruction set.
#include "backends/kernels/copies/transpose_tile.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/backends/kernels/simd_targets.h"

namespace convgrad {
namespace {

// Elements between the ends of neighbouring rows.
constexpr int64_t kGap = 3;
// Number of repetitions of a tile.
constexpr int64_t kSteps = 2;

template <typename Element>
struct Example {
  // `gap` is the number of elements between the ends of neighbouring columns.
  Example(int64_t rows, int64_t padded_rows, int64_t columns, int64_t gap)
      : row_pitch(columns + kGap), column_pitch(padded_rows + gap) {
    // The readable memory ends with the last row.
    source.resize((kSteps * rows - 1) * row_pitch + columns);
    std::iota(source.begin(), source.end(), Element{1});
    // A column of canaries follows each tile.
    expected.resize(kSteps * (columns + 1) * column_pitch, kCanary);
    for (int64_t step = 0; step < kSteps; ++step) {
      for (int64_t c = 0; c < columns; ++c) {
        Element* to = &expected[(step * (columns + 1) + c) * column_pitch];
        std::fill_n(to, padded_rows, Element{0});
        for (int64_t r = 0; r < rows; ++r) {
          to[r] = source[(step * rows + r) * row_pitch + c];
        }
      }
    }
  }

  static constexpr Element kCanary = 60000;
  int64_t row_pitch, column_pitch;
  std::vector<Element> source, expected;
};

template <typename Element>
void Check(int64_t rows, int64_t padded_rows, int64_t columns,
           int64_t gap = kGap) {
  SCOPED_TRACE(absl::StrCat(sizeof(Element), " bytes, ", rows, " of ",
                            padded_rows, " x ", columns, ", gap ", gap));
  const Example<Element> example(rows, padded_rows, columns, gap);
  const StridedLoop outer = {kSteps, rows * example.row_pitch,
                             (columns + 1) * example.column_pitch};
  const TransposeTile tile = {.element_bytes = sizeof(Element),
                              .rows = rows,
                              .padded_rows = padded_rows,
                              .columns = columns,
                              .row_pitch = example.row_pitch,
                              .column_pitch = example.column_pitch,
                              .outer = absl::MakeConstSpan(&outer, 1),
                              .readable = std::ssize(example.source)};
  std::vector<Element> got(example.expected.size(), example.kCanary);
  Transpose(tile, example.source.data(), got.data());
  EXPECT_EQ(got, example.expected);
}

TEST(TransposeTile, MatchesPlainLoops) {
  ForEachSimdTarget([] {
    for (int64_t rows : {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 24, 31, 33, 50}) {
      for (int64_t columns : {1, 2, 3, 5, 8, 9, 15, 16, 17, 23, 32, 35}) {
        for (int64_t padded : {rows, rows + 1, (rows + 15) / 16 * 16}) {
          Check<uint16_t>(rows, padded, columns);
          Check<uint32_t>(rows, padded, columns);
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  });
}

TEST(TransposeTile, FewRowsMayFillTheDestination) {
  ForEachSimdTarget([] {
    for (int64_t rows : {1, 2, 3, 4, 5}) {
      for (int64_t columns : {1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 64, 100}) {
        for (int64_t padded : {rows, rows + 1}) {
          Check<uint16_t>(rows, padded, columns, 0);
          Check<uint32_t>(rows, padded, columns, 0);
        }
      }
    }
  });
}

}  // namespace
}  // namespace convgrad
