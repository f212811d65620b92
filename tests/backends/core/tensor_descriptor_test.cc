#include "backends/core/tensor_descriptor.h"

#include <limits>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

using testing::ElementsAre;

constexpr Layout kAllLayouts[] = {
    Layout::kNCX, Layout::kNXC,      Layout::kOIX,       Layout::kOXI,
    Layout::kXIO, Layout::kNDC1HWC0, Layout::kFractalZ3D};

TensorDescriptor Make(Layout layout, const Dims& dims, int64_t c0 = 0,
                      int64_t groups = 1, DataType dtype = DataType::kBF16) {
  return {dtype, layout, dims, c0, groups};
}

int64_t Elements(const TensorDescriptor& descriptor) {
  return *ByteSize(descriptor) / ByteSizeOf(descriptor.dtype);
}

// Returns the offsets of all elements in logical row-major order.
std::vector<int64_t> AllOffsets(const TensorDescriptor& descriptor) {
  std::vector<int64_t> offsets;
  Dims index(descriptor.dims.size(), 0);
  for (int64_t i = 0; i < ElementCount(descriptor); ++i) {
    int64_t rest = i;
    for (size_t axis = index.size(); axis-- > 0;) {
      index[axis] = rest % descriptor.dims[axis];
      rest /= descriptor.dims[axis];
    }
    offsets.push_back(OffsetOf(descriptor, index));
  }
  return offsets;
}

TEST(TensorDescriptorTest, StridesFollowTheLayoutsName) {
  const Dims dims = {2, 3, 4, 5};
  EXPECT_THAT(Strides(Make(Layout::kNCX, dims)), ElementsAre(60, 20, 5, 1));
  EXPECT_THAT(Strides(Make(Layout::kNXC, dims)), ElementsAre(60, 1, 15, 3));
  EXPECT_THAT(Strides(Make(Layout::kOIX, dims)), ElementsAre(60, 20, 5, 1));
  EXPECT_THAT(Strides(Make(Layout::kOXI, dims)), ElementsAre(60, 1, 15, 3));
  EXPECT_THAT(Strides(Make(Layout::kXIO, dims)), ElementsAre(1, 2, 30, 6));
}

TEST(TensorDescriptorTest, StridesOfLinearAndVolumes) {
  EXPECT_THAT(Strides(Make(Layout::kNXC, {2, 3})), ElementsAre(3, 1));
  EXPECT_THAT(Strides(Make(Layout::kOXI, {2, 3})), ElementsAre(3, 1));
  EXPECT_THAT(Strides(Make(Layout::kXIO, {2, 3})), ElementsAre(1, 2));
  EXPECT_THAT(Strides(Make(Layout::kNXC, {2, 3, 4})), ElementsAre(12, 1, 3));
  EXPECT_THAT(Strides(Make(Layout::kXIO, {2, 3, 4, 5, 6})),
              ElementsAre(1, 2, 180, 36, 6));
}

TEST(TensorDescriptorTest, OffsetsAreThoseOfTheStrides) {
  EXPECT_EQ(OffsetOf(Make(Layout::kXIO, {2, 3, 4, 5}), {1, 2, 3, 4}),
            1 + 2 * 2 + 3 * 30 + 4 * 6);
  EXPECT_EQ(OffsetOf(Make(Layout::kNXC, {2, 3, 4, 5}), {1, 2, 3, 4}),
            60 + 2 + 45 + 12);
}

TEST(TensorDescriptorTest, EveryLayoutGivesEveryElementAPlaceOfItsOwn) {
  for (Layout layout : kAllLayouts) {
    for (const Dims& dims :
         {Dims{6, 3}, Dims{6, 17, 2}, Dims{4, 5, 2, 3}, Dims{2, 9, 2, 3, 2}}) {
      const auto descriptor = Make(layout, dims, 8, 2, DataType::kF32);
      const std::vector<int64_t> offsets = AllOffsets(descriptor);
      const std::set<int64_t> distinct(offsets.begin(), offsets.end());
      EXPECT_EQ(distinct.size(), offsets.size()) << ToString(descriptor);
      EXPECT_GE(*distinct.begin(), 0);
      EXPECT_LT(*distinct.rbegin(), Elements(descriptor));
    }
  }
}

TEST(TensorDescriptorTest, ChannelBlocksOfActivations) {
  const auto descriptor = Make(Layout::kNDC1HWC0, {2, 17, 3, 4, 5}, 16);
  EXPECT_EQ(Elements(descriptor), 2 * 3 * 2 * 4 * 5 * 16);
  // ((((n*D+d)*C1 + c/C0)*H + h)*W + w)*C0 + c%C0
  EXPECT_EQ(OffsetOf(descriptor, {1, 16, 2, 3, 4}),
            ((((1 * 3 + 2) * 2 + 1) * 4 + 3) * 5 + 4) * 16 + 0);
  EXPECT_EQ(OffsetOf(descriptor, {0, 15, 0, 0, 1}), 16 + 15);
}

TEST(TensorDescriptorTest, MissingLeadingAxesAreOneInChannelBlocks) {
  const auto two = Make(Layout::kNDC1HWC0, {2, 9, 4, 5}, 8);
  const auto three = Make(Layout::kNDC1HWC0, {2, 9, 1, 4, 5}, 8);
  EXPECT_EQ(AllOffsets(two), AllOffsets(three));
  const auto linear = Make(Layout::kNDC1HWC0, {2, 9}, 8);
  EXPECT_EQ(Elements(linear), 2 * 2 * 8);
  EXPECT_EQ(OffsetOf(linear, {1, 8}), 24);
}

TEST(TensorDescriptorTest, FractalWeightOfTheContractsFirstExample) {
  const auto descriptor = Make(Layout::kFractalZ3D, {17, 18, 1, 2, 1}, 16);
  EXPECT_EQ(Elements(descriptor), 4 * 2 * 16 * 16);
  EXPECT_EQ(OffsetOf(descriptor, {16, 17, 0, 1, 0}), 1793);
}

TEST(TensorDescriptorTest, FractalWeightOfTwoGroupsFromTheContract) {
  const auto descriptor = Make(Layout::kFractalZ3D, {4, 3, 1, 1, 1}, 16, 2);
  EXPECT_EQ(OffsetOf(descriptor, {3, 2, 0, 0, 0}), 53);
}

TEST(TensorDescriptorTest, FractalDepthwiseFusesSixteenGroups) {
  const auto descriptor = Make(Layout::kFractalZ3D, {17, 1, 3, 3}, 16, 17);
  EXPECT_EQ(Elements(descriptor), 18 * 1 * 16 * 16);
  // Group 1 is on the diagonal of its block; group 16 starts the second block.
  EXPECT_EQ(OffsetOf(descriptor, {1, 0, 0, 0}), 16 + 1);
  EXPECT_EQ(OffsetOf(descriptor, {16, 0, 0, 0}), 9 * 256);
}

// All of a plane comes before the next 16 input channels; o is next to last.
TEST(TensorDescriptorTest, FractalMemoryOrderWithoutGroups) {
  const auto descriptor = Make(Layout::kFractalZ3D, {20, 20, 2, 2, 2}, 16);
  const int64_t n1 = 2, plane = 4;
  auto offset = [&](int64_t o, int64_t i, int64_t d, int64_t h, int64_t w) {
    const int64_t row = (d * 2 + i / 16) * plane + h * 2 + w;
    return ((row * n1 + o / 16) * 16 + o % 16) * 16 + i % 16;
  };
  EXPECT_EQ(OffsetOf(descriptor, {19, 18, 1, 0, 1}), offset(19, 18, 1, 0, 1));
  EXPECT_EQ(OffsetOf(descriptor, {3, 1, 0, 1, 0}), offset(3, 1, 0, 1, 0));
}

TEST(TensorDescriptorTest, ByteSizeCountsPadLanesAndDtype) {
  EXPECT_EQ(ByteSize(Make(Layout::kNCX, {2, 3, 4}, 0, 1, DataType::kF32)), 96);
  EXPECT_EQ(ByteSize(Make(Layout::kNCX, {2, 3, 4})), 48);
  EXPECT_EQ(ByteSize(Make(Layout::kNDC1HWC0, {1, 1, 2, 2}, 16)), 128);
  EXPECT_EQ(ByteSize(Make(Layout::kNCX, {})), 2);
}

TEST(TensorDescriptorTest, EmptyTensorsHaveNoBytes) {
  EXPECT_EQ(ByteSize(Make(Layout::kNCX, {0, 3, 4})), 0);
  EXPECT_EQ(ByteSize(Make(Layout::kNDC1HWC0, {0, 3, 4}, 16)), 0);
  EXPECT_EQ(ElementCount(Make(Layout::kNCX, {0, 3, 4})), 0);
}

TEST(TensorDescriptorTest, ByteSizeBeyond63BitsIsAbsent) {
  const int64_t big = int64_t{1} << 31;
  EXPECT_EQ(ByteSize(Make(Layout::kNCX, {big, big, big})), std::nullopt);
  EXPECT_EQ(ByteSize(Make(Layout::kNCX, {big, big})), std::nullopt);
  EXPECT_EQ(ByteSize(Make(Layout::kNCX, {big, big / 2})), int64_t{1} << 62);
  // The tensor fits without padding, but not with the padding of one channel to
  // 16.
  EXPECT_EQ(ByteSize(Make(Layout::kNDC1HWC0, {big, 1, big / 4}, 16)),
            std::nullopt);
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(ByteSize(Make(Layout::kNDC1HWC0, {1, most}, 16)), std::nullopt);
  EXPECT_EQ(ByteSize(Make(Layout::kFractalZ3D, {most, 1, 1}, 16)),
            std::nullopt);
}

TEST(TensorDescriptorTest, NamesParseBack) {
  for (Layout layout : kAllLayouts) {
    EXPECT_EQ(ParseLayout(NameOf(layout)), layout);
  }
  EXPECT_EQ(ParseLayout("NCHX"), std::nullopt);
}

TEST(TensorDescriptorTest, NamesMaySpellTheirAxes) {
  for (absl::string_view name : {"NCX", "NCW", "NCHW", "NCDHW"}) {
    EXPECT_EQ(ParseLayout(name), Layout::kNCX) << name;
  }
  EXPECT_EQ(ParseLayout("NHWC"), Layout::kNXC);
  EXPECT_EQ(ParseLayout("OIHW"), Layout::kOIX);
  EXPECT_EQ(ParseLayout("ODHWI"), Layout::kOXI);
  EXPECT_EQ(ParseLayout("HWIO"), Layout::kXIO);
  EXPECT_EQ(ParseLayout("NHW"), std::nullopt);
}

TEST(TensorDescriptorTest, DefaultChannelBlockFollowsTheDtype) {
  EXPECT_EQ(DefaultC0(DataType::kF32), 8);
  EXPECT_EQ(DefaultC0(DataType::kBF16), 16);
  EXPECT_EQ(DefaultC0(DataType::kF16), 16);
}

TEST(TensorDescriptorTest, EqualityIgnoresWhatTheLayoutIgnores) {
  TensorDescriptor a = Make(Layout::kNXC, {2, 64, 7, 7}, 16);
  TensorDescriptor b = Make(Layout::kNXC, {2, 64, 7, 7}, 8);
  b.groups = 2;
  EXPECT_EQ(a, b);
  a.layout = b.layout = Layout::kNDC1HWC0;
  EXPECT_NE(a, b);
  b.c0 = 16;
  EXPECT_EQ(a, b);
  a.layout = b.layout = Layout::kFractalZ3D;
  EXPECT_NE(a, b);
}

TEST(TensorDescriptorTest, TextNamesTheChannelBlockWhereItCounts) {
  EXPECT_EQ(ToString(Make(Layout::kNXC, {2, 64, 56, 56})),
            "bf16:NXC[2,64,56,56]");
  EXPECT_EQ(ToString(Make(Layout::kNDC1HWC0, {2, 64, 56, 56}, 16)),
            "bf16:NDC1HWC0/16[2,64,56,56]");
  EXPECT_EQ(ToString(Make(Layout::kNCX, {})), "bf16:NCX[]");
}

}  // namespace
}  // namespace convgrad
