// Concatenations, slices and flattening as copies between layouts.
#include "backends/kernels/operators/channel_layout.h"

#include <vector>

#include "backends/kernels/copies/reorder.h"
#include "gtest/gtest.h"
#include "tests/backends/kernels/operators/channel_tensors.h"

namespace convgrad {
namespace {

ChannelBlocks WithChannels(ChannelBlocks blocks, int64_t channels) {
  if (blocks.block == blocks.channels) blocks.block = channels;
  blocks.channels = channels;
  return blocks;
}

void Copy(const PhysicalLayout& from, ChannelTensor& x,
          const PhysicalLayout& to, ChannelTensor& y) {
  Reorder::Make(from, x.blocks().dtype, to, y.blocks().dtype)
      .Run(x.data(), y.data());
}

// Slices that begin and end at blocks' boundaries, and others.
TEST(ChannelLayoutTest, ConcatenatesAndSlices) {
  for (const std::vector<int64_t>& counts :
       {std::vector<int64_t>{16, 32, 16}, {3, 5, 12}, {16, 5}, {1, 40}}) {
    for (const ChannelBlocks& shape : ManyBlocks()) {
      SCOPED_TRACE(ToText(shape));
      int64_t all = 0;
      for (int64_t count : counts) all += count;
      const ChannelBlocks blocks = WithChannels(shape, all);
      ChannelTensor y(blocks);
      int64_t first = 0;
      for (int64_t count : counts) {
        const ChannelBlocks part = WithChannels(shape, count);
        ChannelTensor x = Random(part, static_cast<unsigned>(count));
        const PhysicalLayout slice = SliceLayout(blocks, first, count);
        Copy(SliceLayout(part, 0, count), x, slice, y);
        x.ForEach([&](int64_t n, int64_t c, int64_t s) {
          ASSERT_EQ(y.At(n, first + c, s), x.At(n, c, s));
        });
        ChannelTensor back(part);
        Copy(slice, y, SliceLayout(part, 0, count), back);
        EXPECT_EQ(back.bytes(), x.bytes());
        first += count;
      }
      // No later slice has touched an earlier one.
      first = 0;
      for (int64_t count : counts) {
        const ChannelBlocks part = WithChannels(shape, count);
        ChannelTensor x = Random(part, static_cast<unsigned>(count));
        x.ForEach([&](int64_t n, int64_t c, int64_t s) {
          ASSERT_EQ(y.At(n, first + c, s), x.At(n, c, s)) << first + c;
        });
        first += count;
      }
      y.ExpectZeroPadding();
    }
  }
}

TEST(ChannelLayoutTest, PaddingIsCleared) {
  const ChannelBlocks blocks{2, 20, 6, 16};
  const ChannelBlocks plain{2, 20, 6, 1};
  ChannelTensor x = Random(plain, 1), y(blocks);
  std::vector<float> dirty(blocks.size(), 7);
  Reorder::Make(SliceLayout(plain, 0, 20), DataType::kF32,
                SliceLayout(blocks, 0, 20), DataType::kF32)
      .Run(x.data(), dirty.data());
  Copy(SliceLayout(plain, 0, 20), x, SliceLayout(blocks, 0, 20), y);
  EXPECT_EQ(std::memcmp(dirty.data(), y.data(), blocks.bytes()), 0);
  y.ExpectZeroPadding();
}

TEST(ChannelLayoutTest, Flattens) {
  for (const ChannelBlocks& blocks : ManyBlocks()) {
    SCOPED_TRACE(ToText(blocks));
    ChannelBlocks plain = blocks;
    plain.block = 1;
    ChannelTensor x = Random(blocks, 1), flat(plain), back(blocks);
    const PhysicalLayout blocked = SliceLayout(blocks, 0, blocks.channels);
    const PhysicalLayout rows = SliceLayout(plain, 0, blocks.channels);
    Copy(blocked, x, rows, flat);
    x.ForEach([&](int64_t n, int64_t c, int64_t s) {
      const int64_t at = (n * blocks.channels + c) * blocks.spatial + s;
      ASSERT_EQ(LoadAsDouble(blocks.dtype,
                             &flat.bytes()[at * ByteSizeOf(blocks.dtype)]),
                x.At(n, c, s));
    });
    Copy(rows, flat, blocked, back);
    EXPECT_EQ(back.bytes(), x.bytes());
  }
}

}  // namespace
}  // namespace convgrad
