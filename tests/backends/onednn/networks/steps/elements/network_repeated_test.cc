// Tests which repeated operands are read in runs, and that the runs' pieces
// cover all elements. Values are compared by the programs repeated_in* of
// tests/conformance.
#include "backends/onednn/networks/steps/elements/network_repeated.h"

#include <vector>

#include "gtest/gtest.h"

namespace convgrad::onednn {
namespace {

int64_t CountOf(const Dims& dims) {
  int64_t count = 1;
  for (const int64_t extent : dims) count *= extent;
  return count;
}

// Returns the operand's element for each element of the rows; -1 for elements
// that no piece has, -2 for those that several have.
std::vector<int64_t> ElementsOf(const RepeatedRuns& runs, const Dims& to) {
  std::vector<int64_t> elements(CountOf(to), -1);
  const RunContext context({}, 3);
  ForRuns(runs, context, [&](int64_t rows, int64_t operand, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      int64_t& element = elements[rows + i];
      element = element == -1 ? operand + i : -2;
    }
  });
  return elements;
}

std::vector<int64_t> ExpectedOf(const Dims& from, const Dims& to) {
  std::vector<int64_t> elements;
  const Dims strides = BroadcastStrides(from, to);
  for (int64_t i = 0; i < CountOf(to); ++i) {
    int64_t element = 0, rest = i;
    for (size_t axis = to.size(); axis-- > 0; rest /= to[axis]) {
      element += rest % to[axis] * strides[axis];
    }
    elements.push_back(element);
  }
  return elements;
}

TEST(NetworkRepeated, PiecesOfRunsCoverAllElementsOnce) {
  struct Case {
    Dims from, to;
  };
  const std::vector<Case> cases = {
      {{1, 3, 49, 49}, {6, 3, 49, 49}},        // a bias by head
      {{1, 4, 1, 49, 49}, {2, 4, 3, 49, 49}},  // a mask by window
      {{3, 1, 300}, {3, 4, 300}},
      {{300}, {2, 3, 300}},
      {{1, 3, 3000}, {2, 3, 3000}},      // of two pieces
      {{2, 1, 1, 256}, {2, 5, 1, 256}},  // with an axis of extent 1
  };
  for (const Case& one : cases) {
    const auto runs = RunsOf(one.from, one.to);
    ASSERT_TRUE(runs.has_value());
    EXPECT_EQ(runs->length * runs->count, CountOf(one.to));
    EXPECT_EQ(ElementsOf(*runs, one.to), ExpectedOf(one.from, one.to));
  }
}

TEST(NetworkRepeated, ShortRunsAreLeft) {
  EXPECT_FALSE(RunsOf({1, 4, 8}, {9, 4, 8}).has_value());
  EXPECT_FALSE(RunsOf({2, 300, 1}, {2, 300, 300}).has_value());
}

}  // namespace
}  // namespace convgrad::onednn
