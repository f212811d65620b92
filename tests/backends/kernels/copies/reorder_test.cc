#include "backends/kernels/copies/reorder.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "backends/kernels/copies/element_convert.h"
#include "gtest/gtest.h"
#include "tests/backends/kernels/simd_targets.h"

namespace convgrad {
namespace {

using Bytes = std::vector<unsigned char>;

constexpr DataType kTypes[] = {DataType::kF32, DataType::kBF16, DataType::kF16};
constexpr size_t kCanaryBytes = 64;

// Calls body(index) for every logical index.
template <typename Body>
void ForEachIndex(const Dims& dims, const Body& body) {
  int64_t count = 1;
  for (int64_t extent : dims) count *= extent;
  Dims index(dims.size(), 0);
  for (int64_t i = 0; i < count; ++i) {
    body(index);
    for (size_t axis = dims.size(); axis-- > 0;) {
      if (++index[axis] < dims[axis]) break;
      index[axis] = 0;
    }
  }
}

// Returns random values for elements, and NaN for all other bytes.
Bytes MakeSource(const TensorDescriptor& descriptor) {
  static std::mt19937 random(1);
  Bytes bytes(*ByteSize(descriptor), 0xff);
  const int64_t size = ByteSizeOf(descriptor.dtype);
  ForEachIndex(descriptor.dims, [&](const Dims& index) {
    unsigned char* element = &bytes[OffsetOf(descriptor, index) * size];
    const uint32_t kind = random();
    if (kind % 8 == 0) {
      const uint32_t bits = random();  // includes NaN, Inf and subnormals
      std::memcpy(element, &bits, size);
    } else {
      StoreRounded(descriptor.dtype,
                   static_cast<double>(static_cast<int32_t>(kind)) / 65536,
                   element);
    }
  });
  return bytes;
}

Bytes SlowReorder(const TensorDescriptor& from, const Bytes& source,
                  const TensorDescriptor& to) {
  Bytes bytes(*ByteSize(to), 0);
  ForEachIndex(from.dims, [&](const Dims& index) {
    ConvertRun(from.dtype,
               &source[OffsetOf(from, index) * ByteSizeOf(from.dtype)],
               to.dtype, &bytes[OffsetOf(to, index) * ByteSizeOf(to.dtype)], 1);
  });
  return bytes;
}

// Runs with buffers shifted by `misalignment` bytes. If `split`, runs the parts
// one by one in reverse order.
Bytes FastReorder(const Reorder& reorder, const Bytes& source, size_t size,
                  bool split, size_t misalignment = 0) {
  Bytes in(source.size() + misalignment);
  std::copy(source.begin(), source.end(), in.begin() + misalignment);
  Bytes out(size + misalignment + kCanaryBytes, 0xff);
  unsigned char* destination = out.data() + misalignment;
  if (split) {
    for (int64_t part = reorder.part_count(); part-- > 0;) {
      reorder.Run(in.data() + misalignment, destination, part, part + 1);
    }
  } else {
    reorder.Run(in.data() + misalignment, destination);
  }
  for (size_t i = 0; i < misalignment; ++i) EXPECT_EQ(out[i], 0xff);
  for (size_t i = 0; i < kCanaryBytes; ++i) {
    EXPECT_EQ(destination[size + i], 0xff) << "canary " << i;
  }
  return Bytes(destination, destination + size);
}

::testing::AssertionResult SameBytes(const Bytes& got, const Bytes& expected) {
  const auto [a, b] =
      std::mismatch(got.begin(), got.end(), expected.begin(), expected.end());
  if (a == got.end() && b == expected.end()) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure()
         << "byte " << a - got.begin() << " of " << expected.size();
}

void ExpectMatchesSlowLoop(const TensorDescriptor& from,
                           const TensorDescriptor& to) {
  SCOPED_TRACE(ToString(from) + " -> " + ToString(to) + " groups " +
               std::to_string(std::max(from.groups, to.groups)));
  const Bytes source = MakeSource(from);
  const Bytes expected = SlowReorder(from, source, to);
  const Reorder reorder = Reorder::Make(from, to);
  EXPECT_TRUE(SameBytes(FastReorder(reorder, source, expected.size(), false),
                        expected));
  EXPECT_TRUE(SameBytes(FastReorder(reorder, source, expected.size(), true, 2),
                        expected));
}

struct LayoutAndBlock {
  Layout layout;
  int64_t c0;
};

constexpr LayoutAndBlock kActivations[] = {{Layout::kNCX, 0},
                                           {Layout::kNXC, 0},
                                           {Layout::kNDC1HWC0, 8},
                                           {Layout::kNDC1HWC0, 16}};
constexpr LayoutAndBlock kWeights[] = {{Layout::kOIX, 0},
                                       {Layout::kOXI, 0},
                                       {Layout::kXIO, 0},
                                       {Layout::kFractalZ3D, 8},
                                       {Layout::kFractalZ3D, 16}};

template <typename Layouts>
void ExpectAllPairs(const Layouts& layouts, const Dims& dims, int64_t groups) {
  for (const LayoutAndBlock& a : layouts) {
    for (const LayoutAndBlock& b : layouts) {
      for (DataType from : kTypes) {
        for (DataType to : kTypes) {
          ExpectMatchesSlowLoop({from, a.layout, dims, a.c0, groups},
                                {to, b.layout, dims, b.c0, groups});
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

TEST(ReorderTest, ActivationsOfEveryRankAndChannelTail) {
  for (int64_t channels : {1, 3, 15, 16, 17, 31, 33, 40}) {
    for (const Dims& spatial : {Dims{}, Dims{1}, Dims{67}, Dims{3, 5},
                                Dims{9, 8}, Dims{2, 3, 4}, Dims{3, 1, 17}}) {
      Dims dims = {2, channels};
      dims.insert(dims.end(), spatial.begin(), spatial.end());
      ExpectAllPairs(kActivations, dims, 1);
      if (HasFailure()) return;
    }
  }
}

TEST(ReorderTest, WeightsOfEveryRankAndChannelTail) {
  for (const auto& [o, i] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 1}, {16, 16}, {17, 18}, {3, 33}, {40, 7}, {31, 15}, {33, 8}}) {
    for (const Dims& kernel : {Dims{}, Dims{3}, Dims{1, 1}, Dims{2, 2},
                               Dims{3, 3}, Dims{3, 3, 3}, Dims{2, 1, 5}}) {
      Dims dims = {o, i};
      dims.insert(dims.end(), kernel.begin(), kernel.end());
      ExpectAllPairs(kWeights, dims, 1);
      if (HasFailure()) return;
    }
  }
}

struct Grouped {
  int64_t groups, ocg, icg;
};

TEST(ReorderTest, WeightsOfFusedAndPartlyFilledSuperGroups) {
  for (const Grouped& g : std::vector<Grouped>{{17, 1, 1},
                                               {2, 2, 3},
                                               {32, 4, 4},
                                               {5, 24, 8},
                                               {3, 8, 12},
                                               {3, 4, 8},
                                               {2, 16, 16},
                                               {6, 20, 10},
                                               {7, 2, 16},
                                               {19, 16, 1}}) {
    for (const Dims& kernel : {Dims{}, Dims{3}, Dims{3, 3}, Dims{2, 1, 3}}) {
      Dims dims = {g.groups * g.ocg, g.icg};
      dims.insert(dims.end(), kernel.begin(), kernel.end());
      ExpectAllPairs(kWeights, dims, g.groups);
      if (HasFailure()) return;
    }
  }
}

TEST(ReorderTest, TensorsOfManyTilesAndParts) {
  ExpectAllPairs(kActivations, {1, 33, 61, 67}, 1);
  ExpectAllPairs(kActivations, {1, 260, 3, 7, 11}, 1);
  ExpectAllPairs(kActivations, {3, 1030}, 1);
  ExpectAllPairs(kWeights, {70, 50, 3, 3}, 1);
  ExpectAllPairs(kWeights, {36, 50, 3, 3, 3}, 1);
  ExpectAllPairs(kWeights, {260, 130, 1, 1}, 1);
}

TEST(ReorderTest, EveryInstructionSet) {
  ForEachSimdTarget([] {
    ExpectAllPairs(kActivations, {1, 33, 9, 13}, 1);
    ExpectAllPairs(kWeights, {20, 19, 3, 3}, 1);
    ExpectAllPairs(kWeights, {17, 1, 3, 3}, 17);
  });
}

TEST(ReorderTest, UnsignedIntegersBecomeFloats) {
  ForEachSimdTarget([] {
    for (const Dims& dims :
         {Dims{2, 3}, Dims{2, 3, 67}, Dims{1, 1, 9, 13}, Dims{3, 33, 61, 67}}) {
      for (const LayoutAndBlock& to : kActivations) {
        for (Layout from : {Layout::kNCX, Layout::kNXC}) {
          for (DataType dtype : {DataType::kF32, DataType::kBF16}) {
            for (DataType integers : {DataType::kU8, DataType::kU16}) {
              ExpectMatchesSlowLoop({integers, from, dims},
                                    {dtype, to.layout, dims, to.c0});
            }
          }
        }
      }
    }
  });
}

// Rows are at odd addresses.
TEST(ReorderTest, LargeTensors) {
  const Dims dims = {1, 67, 257, 251};
  const TensorDescriptor plain = {DataType::kF16, Layout::kNCX, dims};
  const TensorDescriptor blocked = {DataType::kF32, Layout::kNDC1HWC0, dims, 8};
  const TensorDescriptor last = {DataType::kF32, Layout::kNXC, dims};
  ExpectMatchesSlowLoop(plain, blocked);
  ExpectMatchesSlowLoop(blocked, last);
  ExpectMatchesSlowLoop(last, {DataType::kF32, Layout::kNCX, dims});
}

TEST(ReorderTest, PartsAreOfUsefulSize) {
  const Dims dims = {4, 64, 112, 112};
  const Reorder reorder =
      Reorder::Make({DataType::kF32, Layout::kNCX, dims},
                    {DataType::kF32, Layout::kNDC1HWC0, dims, 8});
  const int64_t bytes = 4 * 64 * 112 * 112 * 4;
  EXPECT_GE(reorder.part_count(), bytes / (128 << 10));
  EXPECT_LE(reorder.part_count(), bytes / (32 << 10));
}

TEST(ReorderTest, AnEmptyTensorHasNoParts) {
  const Dims dims = {0, 3, 4, 4};
  for (Layout layout : {Layout::kNXC, Layout::kNDC1HWC0}) {
    const Reorder reorder = Reorder::Make({DataType::kF32, Layout::kNCX, dims},
                                          {DataType::kF32, layout, dims, 16});
    EXPECT_EQ(reorder.part_count(), 0);
    reorder.Run(nullptr, nullptr);
  }
}

// The layout is N, ceil(C/B), spatial, B, which equals NDC1HWC0 for one spatial
// axis.
TEST(ReorderTest, ChannelBlockedActivations) {
  for (int64_t block : {8, 16}) {
    for (int64_t channels : {1, 3, 16, 33}) {
      const Dims dims = {2, channels, 3, 5, 7}, flat = {2, channels, 105};
      for (DataType to : kTypes) {
        const TensorDescriptor from = {DataType::kF16, Layout::kNCX, dims};
        const TensorDescriptor same = {to, Layout::kNDC1HWC0, flat, block};
        const Bytes source = MakeSource(from);
        const Bytes expected =
            SlowReorder({DataType::kF16, Layout::kNCX, flat}, source, same);
        const PhysicalLayout plain = PhysicalLayoutOf(from);
        const PhysicalLayout blocked = ChannelBlocked(dims, block);
        const Reorder pack = Reorder::Make(plain, from.dtype, blocked, to);
        EXPECT_TRUE(SameBytes(FastReorder(pack, source, expected.size(), true),
                              expected));
        const Reorder unpack =
            Reorder::Make(blocked, to, plain, DataType::kF32);
        const TensorDescriptor wide = {DataType::kF32, Layout::kNCX, flat};
        const Bytes back = SlowReorder(same, expected, wide);
        EXPECT_TRUE(
            SameBytes(FastReorder(unpack, expected, back.size(), true), back));
      }
    }
  }
}

// The layout is OIhw16i16o: both axes are blocked on one side, none on the
// other.
TEST(ReorderTest, TwoBlockedAxes) {
  for (int64_t o : {5, 16, 40}) {
    for (int64_t i : {3, 32, 35}) {
      const int64_t o1 = (o + 15) / 16, i1 = (i + 15) / 16;
      const PhysicalLayout plain = {{{o, i * 2}, {i, 2}, {2, 1}}};
      const PhysicalLayout blocked = {{{o, 1, 16, i1 * 512, 0, o1 * 16},
                                       {i, 16, 16, 512, 0, i1 * 16},
                                       {2, 256}}};
      std::vector<float> source(o * i * 2), expected(o1 * i1 * 512), got;
      for (size_t j = 0; j < source.size(); ++j) source[j] = j + 1;
      ForEachIndex({o, i, 2}, [&](const Dims& at) {
        expected[at[0] / 16 * i1 * 512 + at[1] / 16 * 512 + at[2] * 256 +
                 at[1] % 16 * 16 + at[0] % 16] =
            source[(at[0] * i + at[1]) * 2 + at[2]];
      });
      got.assign(expected.size(), -1);
      Reorder::Make(plain, DataType::kF32, blocked, DataType::kF32)
          .Run(source.data(), got.data());
      EXPECT_EQ(got, expected) << o << " x " << i;
    }
  }
}

}  // namespace
}  // namespace convgrad
