// Tests the layouts of activations in a network, and the steps that convert to
// them and back.
#include "backends/onednn/networks/schedule/network_layouts.h"

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/backends/onednn/networks/schedule/built_network.h"

namespace convgrad::onednn {
namespace {

// Returns `count` small integers, which are exact in every dtype.
std::vector<float> Numbers(int64_t count) {
  std::vector<float> numbers(count);
  for (int64_t i = 0; i < count; ++i) numbers[i] = static_cast<float>(i % 251);
  return numbers;
}

TensorDescriptor Descriptor(DataType dtype, Layout layout, const Dims& dims) {
  return {dtype, layout, dims, 0, 1};
}

NetworkTensor AddTensor(const Dims& dims, DataType dtype, int64_t block,
                        Schedule* schedule) {
  NetworkTensor tensor = TensorLike(dims, dtype, Form::kImage, block);
  tensor.buffer = schedule->AddBuffer(tensor.blocks.bytes());
  return tensor;
}

ChannelBlocks BlocksOf(const Dims& dims, DataType dtype, Form form,
                       int64_t block) {
  return TensorLike(dims, dtype, form, block).blocks;
}

TEST(IsInBlocks, NeedsBlocksOfThatDtype) {
  const auto is_in_f32_blocks = [](DataType dtype, int64_t block) {
    return IsInBlocks(TensorLike({2, 20, 3, 4}, dtype, Form::kImage, block),
                      DataType::kF32);
  };
  EXPECT_TRUE(is_in_f32_blocks(DataType::kF32, 8));
  EXPECT_TRUE(is_in_f32_blocks(DataType::kF32, 16));
  EXPECT_FALSE(is_in_f32_blocks(DataType::kBF16, 16));
  EXPECT_FALSE(is_in_f32_blocks(DataType::kF32, kChannelsLast));
}

TEST(TensorLike, ManyChannelsAreInBlocksAndFewAreNot) {
  const ChannelBlocks blocked =
      BlocksOf({2, 5, 3, 4}, DataType::kBF16, Form::kImage, 8);
  EXPECT_EQ(blocked.batch, 2);
  EXPECT_EQ(blocked.channels, 5);
  EXPECT_EQ(blocked.spatial, 12);
  EXPECT_EQ(blocked.block, 8);
  EXPECT_EQ(blocked.dtype, DataType::kBF16);
  EXPECT_EQ(BlocksOf({2, 4, 3, 4}, DataType::kF32, Form::kImage, 8).block, 4);
  EXPECT_EQ(
      BlocksOf({2, 5, 3, 4}, DataType::kF32, Form::kImage, kChannelsLast).block,
      5);
}

TEST(TensorLike, RowsAndScalarsHaveOneBlock) {
  const ChannelBlocks rows =
      BlocksOf({3, 2, 100}, DataType::kF32, Form::kRows, 16);
  EXPECT_EQ(rows.batch, 6);
  EXPECT_EQ(rows.block, 100);
  EXPECT_EQ(rows.spatial, 1);
  EXPECT_EQ(BlocksOf({}, DataType::kF32, Form::kRows, 16).size(), 1);
}

// Converts a tensor of the caller to a network's layout and, as far as that is
// the caller's layout of results, back.
void ExpectRoundTrip(Layout layout, const Dims& dims, DataType dtype,
                     int64_t block) {
  SCOPED_TRACE(absl::StrCat("dtype ", static_cast<int>(dtype), " block ", block,
                            " layout ", static_cast<int>(layout), " channels ",
                            dims[1]));
  const TensorDescriptor given = Descriptor(DataType::kF32, layout, dims);
  const int64_t bytes = *ByteSize(given);
  Schedule schedule;
  const BufferId from = schedule.AddBuffer(bytes);
  const NetworkTensor inside = AddTensor(dims, dtype, block, &schedule);
  const BufferId to = schedule.AddBuffer(bytes);
  AddImport(from, given, inside, &schedule);
  AddExport(inside, to, &schedule);
  // Converts to f32, so that the test can read it.
  const NetworkTensor wide = Converted(inside, DataType::kF32, &schedule);
  BuffersOf buffers(schedule);
  const std::vector<float> values = Numbers(bytes / 4);
  buffers.Set(from, values);
  buffers.Run();
  if (layout == Layout::kNCX) {
    EXPECT_EQ(buffers.Get<float>(to), values);
  }
  const std::vector<float> found = buffers.Get<float>(wide.buffer);
  const ChannelBlocks& blocks = inside.blocks;
  for (int64_t n = 0; n < blocks.batch; ++n) {
    for (int64_t c = 0; c < blocks.padded_channels(); ++c) {
      for (int64_t s = 0; s < blocks.spatial; ++s) {
        const int64_t at = layout == Layout::kNXC
                               ? (n * blocks.spatial + s) * blocks.channels + c
                               : (n * blocks.channels + c) * blocks.spatial + s;
        const int64_t place =
            ((n * blocks.block_count() + c / blocks.block) * blocks.spatial +
             s) *
                blocks.block +
            c % blocks.block;
        ASSERT_EQ(found[place], c < blocks.channels ? values[at] : 0);
      }
    }
  }
}

TEST(AddImport, PutsEveryElementInItsPlaceAndAddExportReturnsIt) {
  for (const Layout layout : {Layout::kNCX, Layout::kNXC}) {
    for (const int64_t channels : {3, 5, 16, 20}) {
      for (const DataType dtype : {DataType::kF32, DataType::kBF16}) {
        for (const int64_t block : {int64_t{8}, int64_t{16}, kChannelsLast}) {
          ExpectRoundTrip(layout, {2, channels, 3, 2}, dtype, block);
        }
      }
    }
  }
}

TEST(AddImport, WidensBytes) {
  const Dims dims = {2, 3, 2, 2};
  for (const Layout layout : {Layout::kNCX, Layout::kNXC}) {
    Schedule schedule;
    const BufferId from = schedule.AddBuffer(24);
    const NetworkTensor to =
        AddTensor(dims, DataType::kF32, kChannelsLast, &schedule);
    AddImport(from, Descriptor(DataType::kU8, layout, dims), to, &schedule);
    std::vector<uint8_t> bytes(24);
    std::iota(bytes.begin(), bytes.end(), 230);
    BuffersOf buffers(schedule);
    buffers.Set(from, bytes);
    buffers.Run();
    const std::vector<float> found = buffers.Get<float>(to.buffer);
    for (int64_t i = 0; i < 24; ++i) {
      const int64_t n = i / 12, s = i % 12 / 3, c = i % 3;
      const int64_t at = layout == Layout::kNXC ? i : n * 12 + c * 4 + s;
      EXPECT_EQ(found[i], bytes[at]) << i;
    }
  }
}

TEST(LiesAlike, OnlyIfNoByteMoves) {
  Schedule schedule;
  const auto lies_alike = [&](DataType dtype, Layout layout, const Dims& dims,
                              int64_t block = kChannelsLast) {
    return LiesAlike(Descriptor(dtype, layout, dims),
                     AddTensor(dims, DataType::kF32, block, &schedule));
  };
  EXPECT_TRUE(lies_alike(DataType::kF32, Layout::kNXC, {2, 8, 3}));
  EXPECT_FALSE(lies_alike(DataType::kF32, Layout::kNCX, {2, 8, 3}));
  EXPECT_FALSE(lies_alike(DataType::kBF16, Layout::kNXC, {2, 8, 3}));
  EXPECT_FALSE(lies_alike(DataType::kF32, Layout::kNXC, {2, 20, 3}, 16));
  EXPECT_TRUE(lies_alike(DataType::kF32, Layout::kNCX, {2, 8, 1}));
  EXPECT_TRUE(lies_alike(DataType::kF32, Layout::kNCX, {2, 1, 7}));
  EXPECT_TRUE(lies_alike(DataType::kF32, Layout::kNCX, {2, 8}));
}

TEST(Converted, ATensorOfThatDtypeIsItself) {
  Schedule schedule;
  const NetworkTensor tensor =
      AddTensor({1, 8, 2}, DataType::kBF16, 8, &schedule);
  EXPECT_EQ(Converted(tensor, DataType::kBF16, &schedule).buffer,
            tensor.buffer);
  EXPECT_TRUE(schedule.steps().empty());
  const NetworkTensor wide = Converted(tensor, DataType::kF32, &schedule);
  EXPECT_NE(wide.buffer, tensor.buffer);
  EXPECT_EQ(wide.blocks.dtype, DataType::kF32);
  EXPECT_EQ(schedule.steps().size(), 1u);
}

TEST(RoundedWeights, AreWhatTheDtypeHolds) {
  Schedule schedule;
  const Dims dims = {2, 1, 2};
  const BufferId weights = schedule.AddBuffer(16);
  EXPECT_EQ(RoundedWeights(weights, dims, DataType::kF32, &schedule), weights);
  const BufferId rounded =
      RoundedWeights(weights, dims, DataType::kBF16, &schedule);
  BuffersOf buffers(schedule);
  buffers.Set<float>(weights, {1 + 0x1p-9F, 1 + 0x1.8p-8F, -3, 1 + 0x1p-7F});
  buffers.Run();
  EXPECT_EQ(buffers.Get<float>(rounded),
            (std::vector<float>{1, 1 + 0x1p-7F, -3, 1 + 0x1p-7F}));
}

TEST(AddCopy, CopiesEveryByteOfManyParts) {
  const int64_t bytes = 3 * (1 << 18) + 4;
  Schedule schedule;
  const BufferId from = schedule.AddBuffer(bytes);
  const BufferId to = schedule.AddBuffer(bytes);
  AddCopy(from, to, bytes, &schedule);
  BuffersOf buffers(schedule);
  const std::vector<float> values = Numbers(bytes / 4);
  buffers.Set(from, values);
  buffers.Run();
  EXPECT_EQ(buffers.Get<float>(to), values);
}

}  // namespace
}  // namespace convgrad::onednn
